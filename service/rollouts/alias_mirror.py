"""Mirrors who decides in the registry: the alias `champion` of the model. The log is the authority."""

import logging
from collections.abc import Callable

from models.errors import ModelError
from models.registry import ModelRef
from service.background import Background
from service.rollouts.history import History

log = logging.getLogger(__name__)
ALIAS = "champion"

Point = Callable[[str, ModelRef], None]
"""(alias, model): make the registry's alias name this version."""


class AliasMirror(Background):
    """Moves the alias after each promotion and withdrawal; what the registry does not take is tried again."""

    def __init__(
        self, history: Callable[[], History], point: Point, interval_s: float = 2.0, retry_s: float = 30.0
    ) -> None:
        """Mirror nothing yet.

        Args:
            history: tells the rollout topic as far as it is known.
            point: moves the alias.
            interval_s: time between two looks at the history.
            retry_s: time until a registry that did not answer is asked again.
        """
        super().__init__("alias-mirror")
        self._history, self._point = history, point
        self._interval_s, self._retry_s = interval_s, retry_s
        self._mirrored: ModelRef | None = None
        self._fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the alias is behind the log; None when it is not."""
        return self._fault

    def look(self) -> bool:
        """Move the alias if another model decides; returns whether the alias is as the log says."""
        champions = self._history().line.champions
        model = champions[-1].model if champions else None
        if model is None or model == self._mirrored:
            return True
        try:
            self._point(ALIAS, model)
        except ModelError as fault:
            if str(fault) != self._fault:
                log.warning("alias %s is behind the log: %s", ALIAS, fault)
            self._fault = str(fault)
            return False
        self._mirrored, self._fault = model, None
        return True

    def _run(self) -> None:
        wait_s = self._interval_s
        while not self._stop.wait(wait_s):
            wait_s = self._interval_s if self.look() else self._retry_s
