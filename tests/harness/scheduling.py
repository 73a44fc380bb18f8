"""Order in which the processes of a test run take test files."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

PROCESSES_WITH_SERVERS = ("gw0", "gw1")
UNIT = re.compile(r"^pytestmark = \[?pytest\.mark\.unit\b", re.MULTILINE)


class Scheduling(LoadFileScheduling):
    """Two processes take the files that need servers first, the other ones the files that need none.

    Each process that needs servers starts its own. Tests with servers wait a third of their time, in
    which the other processes compute. A process whose kind of file is used up takes the other kind.
    """

    def _assign_work_unit(self, node: Any) -> None:
        with_servers = node.gateway.id in PROCESSES_WITH_SERVERS
        for file in self.workqueue:
            if needs_servers(self.config.rootpath / file) == with_servers:
                self.workqueue.move_to_end(file, last=False)
                break
        super()._assign_work_unit(node)


@cache
def needs_servers(path: Path) -> bool:
    """Return whether a test file may need servers: not all of its tests are marked as unit tests."""
    return UNIT.search(path.read_text()) is None
