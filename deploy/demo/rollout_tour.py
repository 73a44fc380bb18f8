"""The tour of `fraud demo --rollouts`: a better model is promoted, a bad one is stopped by its guard.

Everything goes through the sidecar's API, while transactions stream. The sidecar's guard watch stops the bad
model; the tour only waits until that has happened.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy.demo import training
from deploy.demo.options import DemoError
from deploy.demo.sidecar_client import SidecarClient
from deploy.demo.tour import Tour
from deploy.demo.training import BETTER, TRIGGER_HAPPY, Champion

CANARY_S = 10.0
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
"""Guards for a demo of a few minutes: a hundred or more cards a minute have alerts. A few dozen card-hours
prove or refute that a challenger alerts twice as often as the champion; the usual ratio, 1.5, needs more of
them. The omitted guards need hours of traffic, or cards with a history."""


class RolloutTour(Tour):
    """Tries one challenger after the other; `stop` leaves an open rollout open."""

    def __init__(self, sidecar: SidecarClient, data_dir: Path, print_line: Callable[[str], None]) -> None:
        super().__init__("rollouts", print_line)
        self._sidecar, self._data_dir = sidecar, data_dir

    def _show(self) -> None:
        self._end_open_rollout()
        self._say(
            "a demo is short, so its guard alert_rate passes a challenger from "
            f"{GUARDS['min_card_hours']} card-hours with an alert on (usually: 100), if the challenger "
            "alerts in at most twice as many card-hours as the champion (usually: 1.5 times)"
        )
        self._try_better()
        self._try_trigger_happy()

    def _end_open_rollout(self) -> None:
        """Roll back a rollout that a killed demo left open."""
        if (rollout_id := self._sidecar.get("v1/rollouts")["open"]) is not None:
            seq = self._sidecar.get(f"v1/rollouts/{rollout_id}")["seq"]
            self._sidecar.step(rollout_id, "rolled_back", "left open by a demo that was killed", seq)

    def _try_better(self) -> None:
        start_s = time.monotonic()
        rollout_id, seq = self._shadow(BETTER)
        verdict = self._until(lambda: self._verdict(rollout_id, "pass"), "verdict on the better model")
        self._print_findings(verdict, BETTER)
        seq = self._step(rollout_id, "canary_set", "the guards have passed it in shadow", seq)["seq"]
        self._say(f"{BETTER} decides for {SHARE_BP / 100:g} % of the cards")
        before = self._counts(rollout_id)
        self._stream(CANARY_S)
        after = self._counts(rollout_id)
        decided, transactions = (after[name] - before[name] for name in ("decided", "transactions"))
        self._say(f"{BETTER} decided {decided:,} of {transactions:,} transactions")
        rollout = self._step(rollout_id, "promoted", "no guard was breached in canary", seq)
        offsets = ", ".join(f"{part}@{offset}" for part, offset in rollout["events"][-1]["held_from"].items())
        self._say(f"{BETTER} is promoted: it decides for every card, from partition@offset {offsets} on")
        self.results[BETTER] = {
            "rollout_id": rollout_id, "phase": rollout["phase"], "seconds": _seconds_since(start_s),
            "canary_transactions": transactions, "canary_decided": decided,
        }  # fmt: skip

    def _try_trigger_happy(self) -> None:
        start_s = time.monotonic()
        rollout_id, _ = self._shadow(TRIGGER_HAPPY)
        rollout = self._until(lambda: self._rolled_back(rollout_id), "rollback by the guard")
        rolled_back = rollout["events"][-1]
        breached = next((event for event in rollout["events"] if event["type"] == "breached"), None)
        if breached is None:
            raise DemoError(f"{rollout_id} was rolled back, but not by a guard: {rolled_back['reason']}")
        seconds = _seconds_since(start_s)
        card_hours = sum(breached["verdict"]["counts"]["card_hours"].values())
        self._say(
            f"{TRIGGER_HAPPY} is rolled back after {seconds:.0f} s and {card_hours:,} card-hours "
            f"with an alert, by the guard itself: {rolled_back['reason']}"
        )
        self._say(f"{TRIGGER_HAPPY} never decided; the champion decided for every card")
        self.results[TRIGGER_HAPPY] = {
            "rollout_id": rollout_id, "phase": rollout["phase"], "seconds": seconds,
            "guard": breached["guard"], "reason": rolled_back["reason"], "card_hours": card_hours,
        }  # fmt: skip

    def _shadow(self, name: str) -> tuple[str, int]:
        """Propose a challenger, start it in shadow, and return rollout_id and the last event's number."""
        model = training.trained(self._data_dir, name)
        rollout_id = self._sidecar.propose(
            {
                "reason": "tour of the demo",
                "challengers": [_challenger(name, model)],
                "guards": GUARDS,
            }
        )
        rollout = self._step(rollout_id, "shadow_started", "tour of the demo", 1)
        self._say(
            f"{name} ({model.ref}, AUC ROC {model.auc_roc:.3f}, alerts "
            f"from score {model.threshold:.3f} on) scores every transaction in shadow"
        )
        return rollout_id, rollout["seq"]

    def _step(self, rollout_id: str, kind: str, reason: str, seq: int) -> dict[str, Any]:
        """Write the event after `seq`, wait until every key group has applied it, and return the rollout."""
        written = self._sidecar.step(rollout_id, kind, reason, seq)
        return self._until(
            lambda: self._sidecar.applied(rollout_id, written), f"{kind} event applied by every key group"
        )

    def _verdict(self, rollout_id: str, wanted: str) -> dict[str, Any] | None:
        verdict = self._sidecar.get(f"v1/rollouts/{rollout_id}/verdict")
        if verdict["verdict"] == "breach":
            raise DemoError(
                f"a guard is breached in {rollout_id}, the rollout of the better model: {verdict}"
            )
        return verdict if verdict["verdict"] == wanted else None

    def _rolled_back(self, rollout_id: str) -> dict[str, Any] | None:
        rollout = self._sidecar.get(f"v1/rollouts/{rollout_id}")
        return rollout if rollout["phase"] == "rolled_back" and rollout["state"] == "applied" else None

    def _counts(self, rollout_id: str) -> dict[str, int]:
        """Count the transactions of the trial so far, and those that the challenger decided."""
        groups = self._sidecar.get("v1/progress")["groups"].values()
        challengers = [
            trial
            for group in groups
            for trial in group["totals"]["trials"]
            .get(rollout_id, {"challengers": {}})["challengers"]
            .values()
        ]
        return {name: sum(trial[name] for trial in challengers) for name in ("transactions", "decided")}

    def _print_findings(self, verdict: dict[str, Any], name: str) -> None:
        for finding in verdict["challengers"][name]["findings"]:
            self._say(f"guard {finding['guard']} says {finding['verdict']}: {finding['detail']}")


def _challenger(name: str, model: Champion) -> dict[str, Any]:
    return {
        "name": name,
        "role": "canary",
        "share_bp": SHARE_BP,
        "model": str(model.ref),
        "policy": {"threshold": model.threshold, "max_count_5m": model.max_count_5m},
    }


def _seconds_since(start_s: float) -> float:
    return round(time.monotonic() - start_s, 1)
