"""The tour of `fraud demo --rollouts`: a better model is promoted, a bad one is stopped by its guard.

All of it goes through the sidecar's API, while transactions stream. Who stops the bad one is the sidecar's
guard watch: the tour only waits for it.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from deploy.demo import training
from deploy.demo.options import DemoError
from deploy.demo.sidecar_client import SidecarClient
from deploy.demo.training import BETTER, TRIGGER_HAPPY, Champion
from feature_store.errors import FraudError

T = TypeVar("T")
POLL_S = 0.5
PATIENCE_S = 300.0
"""For an event to be applied, and for a guard to make up its mind."""
CANARY_S = 10.0
"""How long the canary is watched."""
SHARE_BP = 1_000
GUARDS: dict[str, Any] = {
    "alpha": 0.01,
    "deadline_h": 1,
    "min_card_hours": 30,
    "rules": [
        {"name": "alert_rate", "max_ratio": 2.0},
        {"name": "failures", "max_share": 0.01},
    ],
}
"""A demo sees alerts on some hundred cards in a minute: a few dozen of them prove or refute a ratio of 2, for
the usual 1.5 it takes more. The guards left out ask for hours of traffic, or for cards with a past."""


class Tour:
    """Tries both challengers, one after the other, in a thread of its own.

    Args:
        sidecar: where to ask.
        data_dir: of the demo, where the training has left its models.
        say: takes the lines that tell what happens.
    """

    def __init__(self, sidecar: SidecarClient, data_dir: Path, say: Callable[[str], None]) -> None:
        self._sidecar, self._data_dir, self._say = sidecar, data_dir, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tour", daemon=True)
        self.fault: FraudError | None = None
        """Why it could not be gone to its end."""
        self.told: dict[str, Any] = {}
        """By challenger: what has become of it; for the report."""

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether there is no more to come."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End it where it stands; a rollout that is open stays open."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._end_what_was_left()
            self._say(
                "  rollouts: guards of a demo, which sees few alerts: at most 2 card-hours with an alert for "
                f"each of the champion's, judged from {GUARDS['min_card_hours']} on (usually 1.5, from 100)"
            )
            self._try_better()
            self._try_trigger_happy()
        except _StoppedError:
            self._say("  rollouts: ended before the tour was over")
        except FraudError as fault:
            self.fault = fault
        except Exception as fault:
            self.fault = DemoError(f"the tour of the rollouts has failed: {fault!r}; see the sidecar's log")

    def _end_what_was_left(self) -> None:
        """A demo that was killed may have left a rollout open."""
        if (left := self._sidecar.get("v1/rollouts")["open"]) is not None:
            seq = self._sidecar.get(f"v1/rollouts/{left}")["seq"]
            self._sidecar.step(left, "rolled_back", "left open by a demo that was killed", seq)

    def _try_better(self) -> None:
        begun = time.monotonic()
        rollout_id, seq = self._shadow(BETTER)
        verdict = self._until(lambda: self._verdict(rollout_id, "pass"), "a verdict on the better model")
        self._tell(verdict, BETTER)
        seq = self._step(rollout_id, "canary_set", "the guards have passed it in shadow", seq)["seq"]
        self._say(f"  rollouts: {BETTER} decides for {SHARE_BP / 100:g} % of the cards")
        before, until = self._counts(rollout_id), time.monotonic() + CANARY_S
        self._until(lambda: time.monotonic() > until, "time of the canary")
        after = self._counts(rollout_id)
        decided, seen = (after[name] - before[name] for name in ("decided", "transactions"))
        self._say(f"  rollouts: it decided {decided:,} of {seen:,} transactions")
        found = self._step(rollout_id, "promoted", "as good in canary as in shadow", seq)
        held = ", ".join(f"{part}@{offset}" for part, offset in found["events"][-1]["held_from"].items())
        self._say(
            f"  rollouts: {BETTER} is promoted: it decides for every card, from partition@offset {held} on"
        )
        self.told[BETTER] = {
            "rollout_id": rollout_id, "phase": found["phase"], "seconds": _since(begun),
            "canary_transactions": seen, "canary_decided": decided,
        }  # fmt: skip

    def _try_trigger_happy(self) -> None:
        begun = time.monotonic()
        rollout_id, _ = self._shadow(TRIGGER_HAPPY)
        found = self._until(lambda: self._ended(rollout_id), "the guard's rollback")
        rolled_back = found["events"][-1]
        breached = next((event for event in found["events"] if event["type"] == "breached"), None)
        if breached is None:
            raise DemoError(f"{rollout_id} was rolled back, but by no guard: {rolled_back['reason']}")
        seconds = _since(begun)
        self._say(
            f"  rollouts: {TRIGGER_HAPPY} is rolled back after {seconds:.0f} s, by the guard itself: "
            f"{rolled_back['reason']}"
        )
        self._say("  rollouts: it never decided; the champion went on for every card")
        self.told[TRIGGER_HAPPY] = {
            "rollout_id": rollout_id, "phase": found["phase"], "seconds": seconds, "guard": breached["guard"],
            "reason": rolled_back["reason"],
        }  # fmt: skip

    def _shadow(self, name: str) -> tuple[str, int]:
        """Propose a challenger and start its shadow; returns rollout_id and seq."""
        model = training.load(training.file_of(self._data_dir, name))
        if model is None:
            raise DemoError(f"the training has left no model {name} in {self._data_dir}; start with --fresh")
        rollout_id = self._sidecar.propose(
            {
                "reason": "tour of the demo",
                "challengers": [_challenger(name, model)],
                "guards": GUARDS,
            }
        )
        found = self._step(rollout_id, "shadow_started", "tour of the demo", 1)
        self._say(
            f"  rollouts: {name} ({model.ref.name}/{model.ref.version}, AUC ROC {model.auc_roc:.3f}, alerts "
            f"from {model.threshold:.3f} on) scores every transaction in shadow"
        )
        return rollout_id, found["seq"]

    def _step(self, rollout_id: str, kind: str, reason: str, seq: int) -> dict[str, Any]:
        """Write the event after `seq`, and wait until every key group has applied it; returns the rollout."""
        written = self._sidecar.step(rollout_id, kind, reason, seq)
        return self._until(lambda: self._sidecar.applied(rollout_id, written), f"{kind} at every key group")

    def _verdict(self, rollout_id: str, wanted: str) -> dict[str, Any] | None:
        found = self._sidecar.get(f"v1/rollouts/{rollout_id}/verdict")
        if found["verdict"] == "breach":
            raise DemoError(
                f"the guards have stopped {rollout_id}, which was to be the better model: {found}"
            )
        return found if found["verdict"] == wanted else None

    def _ended(self, rollout_id: str) -> dict[str, Any] | None:
        found = self._sidecar.get(f"v1/rollouts/{rollout_id}")
        return found if found["phase"] == "rolled_back" and found["state"] == "applied" else None

    def _counts(self, rollout_id: str) -> dict[str, int]:
        """Transactions of the trial so far, and those that the challenger has decided."""
        groups = self._sidecar.get("v1/progress")["groups"].values()
        challengers = [
            one
            for group in groups
            for one in group["totals"]["trials"].get(rollout_id, {"challengers": {}})["challengers"].values()
        ]
        return {name: sum(one[name] for one in challengers) for name in ("transactions", "decided")}

    def _tell(self, verdict: dict[str, Any], name: str) -> None:
        for finding in verdict["challengers"][name]["findings"]:
            self._say(f"  rollouts: guard {finding['guard']} says {finding['verdict']}: {finding['detail']}")

    def _until(self, condition: Callable[[], T | None], what: str) -> T:
        end = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            if self._stop.wait(POLL_S):
                raise _StoppedError
            if time.monotonic() > end:
                raise DemoError(f"{what} did not come within {PATIENCE_S:.0f} s; see the sidecar's log")
        return found


class _StoppedError(Exception):
    """The demo ends."""


def _challenger(name: str, model: Champion) -> dict[str, Any]:
    return {
        "name": name,
        "role": "canary",
        "share_bp": SHARE_BP,
        "model": f"{model.ref.name}/{model.ref.version}",
        "policy": {"threshold": model.threshold, "max_count_5m": model.max_count_5m},
    }


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 1)
