"""Order in which the processes of a test run take test files."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

PROCESSES_WITH_STACK = ("gw0", "gw1")
WITHOUT_STACK = re.compile(
    r"^pytestmark = \[?\s*(pytest\.mark\.\w+,\s*)*pytest\.mark\.(unit|without_stack)\b", re.MULTILINE
)


class Scheduling(LoadFileScheduling):
    """Two processes begin with the files that use the stack, the others with the files that do not.

    Each process that needs a stack starts its own. Tests on a stack wait a third of their time, in
    which the other processes compute. A process whose kind of file is used up takes the other kind.
    """

    def _assign_work_unit(self, node: Any) -> None:
        with_stack = node.gateway.id in PROCESSES_WITH_STACK
        for file in self.workqueue:
            if may_use_stack(self.config.rootpath / file) == with_stack:
                self.workqueue.move_to_end(file, last=False)
                break
        super()._assign_work_unit(node)


@cache
def may_use_stack(path: Path) -> bool:
    """Return whether a file's tests may use the session's stack: not marked `unit` or `without_stack`."""
    return WITHOUT_STACK.search(path.read_text()) is None
