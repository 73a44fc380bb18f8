"""Polls sidecar, Prometheus and the continuous audit every second; writes changes to the journal."""

from collections.abc import Callable, Collection

from deploy.local.waiting import Patience
from loadtests.faults.errors import FaultError
from loadtests.gamedays.journal import Journal
from loadtests.gamedays.sight import FIRING, Expected, Sight
from loadtests.gamedays.watchers import Watchers
from service.background import Background

EVERY_S = 1.0


class Lookout(Background):
    """Polls in a thread and remembers what was seen since the game day began.

    Args:
        expected: what must be seen; its signs are added to the journal, too.
    """

    def __init__(self, watchers: Watchers, journal: Journal, expected: Expected) -> None:
        super().__init__("lookout", patience_s=None)
        self._watchers, self._journal, self._expected = watchers, journal, expected
        self._before = self.last = watchers.look()
        self._codes: set[str] = set()
        self._checks: set[str] = set()
        self._old = set(self._before.rules)
        """Prometheus alerts that were active before the game day and still are."""
        self._pending: set[str] = set()
        self._firing: set[str] = set()
        self._signs: set[str] = set()

    def missing(self) -> list[str]:
        """Return what has not been seen yet; rules count only with Prometheus."""
        wanted = self._expected
        rules = self._watchers.prometheus is not None
        return [
            *(f"code {code}" for code in wanted.codes if code not in self._codes),
            *(f"check {check}" for check in wanted.checks if check not in self._checks),
            *(str(sign) for sign in wanted.signs if str(sign) not in self._signs),
            *(f"{rule} pending" for rule in wanted.rules if rules and rule not in self._pending),
            *(f"{rule} firing" for rule in wanted.firing if rules and rule not in self._firing),
        ]

    def until(self, condition: Callable[[], bool], description: Callable[[], str], patience_s: float) -> None:
        """Wait until a condition holds.

        Raises:
            FaultError: it does not hold in time, or the polling thread died.
        """
        patience = Patience(patience_s, EVERY_S / 4)
        while not condition():
            if self.has_ended:
                raise FaultError("the polling thread of the game day died; see the traceback above")
            patience.wait(
                lambda: FaultError(f"not seen within {patience_s:.0f} s: {description()}; see the log above")
            )

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self._see(self._watchers.look())
            except OSError as error:
                text = f"sidecar, Prometheus or the continuous audit does not answer: {error}"
                self._journal.add("unseen", text)

    def _see(self, now: Sight) -> None:
        last, self.last = self.last, now
        for code, detail in now.reasons.items():
            if code not in last.reasons:
                self._journal.add("status", f"{code}: {detail}")
        self._add_gone("status", last.reasons.keys() - now.reasons.keys())
        if now.verdict != last.verdict:
            self._journal.add("status", f"verdict {now.verdict}, was {last.verdict}")
        for check in sorted(now.broken - last.broken):
            self._journal.add("readyz", f"503: {check}")
        self._add_gone("readyz", last.broken - now.broken)
        for rule, state in sorted(now.rules.items()):
            if last.rules.get(rule) != state:
                self._journal.add("rule", f"{rule} {state}")
        self._add_gone("rule", last.rules.keys() - now.rules.keys())
        for sign in self._expected.signs:
            value = sign.value(now.samples, self._before.samples)
            if value > sign.above and str(sign) not in self._signs:
                grown = " more than before" if sign.grows else ""
                self._journal.add("metric", f"{sign} {value:.6g}{grown}")
                self._signs.add(str(sign))
        self._codes |= now.reasons.keys()
        self._checks |= now.broken
        self._old &= now.rules.keys()
        self._pending |= now.rules.keys() - self._old
        self._firing |= {rule for rule, state in now.rules.items() if state == FIRING} - self._old

    def _add_gone(self, kind: str, names: Collection[str]) -> None:
        if names:
            self._journal.add(kind, f"over:  {', '.join(sorted(names))}")
