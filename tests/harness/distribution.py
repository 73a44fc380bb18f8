"""Distribution of test files over the processes of a run: the last one gets the files that need no servers.

Half of the time of a test with servers is waiting. So two processes run those, each with servers of its own,
and a third one, without servers, uses the time in which they wait.
"""

from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[2]
FEWEST = 3
"""Processes from which on one of them has no servers."""


class ByServers(LoadFileScheduling):
    """Whole files, in the order of collection; see the module."""

    def _assign_work_unit(self, node: Any) -> None:
        suitable = self._suitable(node)
        if suitable is not None:
            self.workqueue.move_to_end(suitable, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        if self.workqueue and self._has_no_servers(node) and self._suitable(node) is None:
            node.shutdown()  # after its remaining tests
        else:
            super()._reschedule(node)

    def _suitable(self, node: Any) -> str | None:
        """Return the first file that suits a process; None if there is none left."""
        needs = not self._has_no_servers(node)
        return next((file for file in self.workqueue if needs_servers(file) == needs), None)

    def _has_no_servers(self, node: Any) -> bool:
        nodes = sorted(self.nodes, key=lambda node: str(node.gateway.id))
        return len(nodes) >= FEWEST and node is nodes[-1]


@cache
def needs_servers(file: str) -> bool:
    """Return whether a test file has tests that are not marked as unit tests."""
    text = (ROOT / file).read_text()
    return "pytest.mark.unit" not in text or "pytest.mark.integration" in text
