"""The count of Spark's task slots, of which each key group needs one."""

import logging
import time
from typing import Any

from py4j.protocol import Py4JError

log = logging.getLogger(__name__)

SLOTS_S = 0.5
"""Interval at which the task slots of a cluster are counted."""


class Slots:
    """The count of Spark's task slots, of which each key group needs one.

    A group without a slot waits until another group's task ends, to be opened or to save its state, and a
    task lasts as long as its epoch. So the driver keeps epochs short while there are too few slots, for
    example after the loss of an executor.
    """

    def __init__(self, spark: Any, groups: int) -> None:
        context = spark.sparkContext._jsc.sc()
        self._context = context
        self._groups = groups
        self._counted_at, self._short, self._is_local = 0.0, False, context.isLocal()
        self.are_short()

    def are_short(self) -> bool:
        """Return whether there are fewer slots than groups; counts them every SLOTS_S (locally once)."""
        now = time.monotonic()
        if now - self._counted_at > SLOTS_S and not (self._is_local and self._counted_at):
            self._counted_at, before = now, self._short
            try:
                profile = self._context.resourceProfileManager().defaultResourceProfile()
                slots = int(self._context.maxNumConcurrentTasks(profile))
            except (Py4JError, OSError):
                return self._short
            self._short = slots < self._groups
            if self._short != before:
                consequence = (
                    "they take turns in short epochs; a group that has to be opened is late"
                    if self._short
                    else "enough again"
                )
                log.warning("%d task slots for %d key groups: %s", slots, self._groups, consequence)
        return self._short
