"""A thread that sets the registry's alias `champion` to the champion; the rollout topic is the authority."""

import logging
from collections.abc import Callable

from models.registry import ModelRef
from service.background import Background, text_of
from service.rollouts.history import History

log = logging.getLogger(__name__)
ALIAS = "champion"

Point = Callable[[str, ModelRef], None]
"""(alias, model): points the registry's alias to this version."""

INTERVAL_S, RETRY_S = 2.0, 30.0
"""Time between two looks, and after one in which the registry did not answer."""


class AliasMirror(Background):
    """Mover of the alias after each promotion and withdrawal; retries when the registry does not answer."""

    def __init__(self, history: Callable[[], History], point: Point) -> None:
        """Prepare the thread without starting it.

        Args:
            history: returns the history of rollouts; empty until the rollout topic is read to its end.
        """
        super().__init__("alias-mirror")
        self._history, self._point = history, point
        self._mirrored: ModelRef | None = None
        self.fault: str | None = None
        """Why the alias is behind the rollout topic; None if it is not."""

    def look(self) -> bool:
        """Move the alias if the champion has changed; return whether the alias agrees with the topic."""
        champions = self._history().line.champions
        model = champions[-1].model if champions else None
        if model is None or model == self._mirrored:
            return True
        try:
            self._point(ALIAS, model)
        except Exception as error:  # what MLflow and its database raise is not known; the thread goes on
            fault = text_of(error)
            if fault != self.fault:
                log.warning("alias %s is behind the rollout topic: %s", ALIAS, fault)
            # the alias may have moved although the registry did not answer
            self._mirrored, self.fault = None, fault
            return False
        self._mirrored, self.fault = model, None
        return True

    def _run(self) -> None:
        wait_s = INTERVAL_S
        while not self._stop.wait(wait_s):
            wait_s = INTERVAL_S if self.look() else RETRY_S
