"""Sidecar, job and broker are killed within seconds, in every order; then the sidecar's figures are correct.

One rollout with a canary lasts through all orders. Before the kills of each order the rollout is paused or
resumed, and the job may die before it has applied that event. Whenever the canary decides, it decides for
the same cards.
"""

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.sidecar_process import SidecarProcess
from thoroughness import only_thorough

from deploy.local import stack as embedded
from loadtests.faults.installation import Installation, trained
from loadtests.faults.relay import Relay
from loadtests.oracle import Kind
from loadtests.oracle.membership import is_member, salt_of
from loadtests.simulator.rollouts import publish
from models.policy import Policy
from models.rollouts.events import CANARY, Challenger, Event, Type
from service.rollouts.desk import Desk
from service.rollouts.requests import Actor, Step
from service.settings import ServiceSettings

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

ORDERS = list(itertools.permutations(("broker", "job", "sidecar")))
ROLLOUT = "trial"
SHARE_BP = 1_000
"""Basis points: one card in ten is a member."""
ADA = Actor("ada")


class Scene:
    """An installation with a rollout and a sidecar."""

    def __init__(self, relay: Relay, stack_dir: Path) -> None:
        self.relay, self._stack_dir = relay, stack_dir
        self._installed: Installation = relay.installed
        job = self._installed.settings
        self._desk = Desk(
            ServiceSettings(
                bootstrap_servers=job.bootstrap_servers,
                job_id=job.job_id,
                topics=job.topics,
                mlflow_tracking_uri=job.mlflow_tracking_uri,
            )
        )
        self._keys = itertools.count()
        self.sidecar = self._served()

    def _served(self) -> SidecarProcess:
        variables = self._installed.environment()
        wanted = ("FRAUD_BOOTSTRAP_SERVERS", "FRAUD_JOB_ID", "FRAUD_TOPICS__")
        return SidecarProcess(**{name: value for name, value in variables.items() if name.startswith(wanted)})

    def open_canary(self) -> None:
        """Start a canary with the champion's model for one card in ten."""
        known = trained(self._installed.settings.mlflow_tracking_uri)
        policy, now_ms = Policy(known.quality.threshold, 15), int(time.time() * 1000)
        double = Challenger("double", CANARY, SHARE_BP, known.ref, policy)
        common = ("ada", "to be killed", now_ms)
        proposed = Event(
            Type.PROPOSED, ROLLOUT, 1, "1", *common,
            champion=known.ref, challengers=(double,), line=known.ref.name,
        )  # fmt: skip
        started = Event(Type.SHADOW_STARTED, ROLLOUT, 2, "2", *common)
        canary = Event(Type.CANARY_SET, ROLLOUT, 3, "3", *common, challenger="double", share_bp=SHARE_BP)
        job = self._installed.settings
        publish((proposed, started, canary), job.bootstrap_servers, job.topics.model_rollouts)

    def step(self, kind: Type) -> None:
        """Write the next event of the rollout; returns before the job has applied it."""
        self._desk.take(Step(ROLLOUT, kind, "to be killed", f"key-{next(self._keys)}"), ADA)

    def kill(self, victim: str) -> None:
        """Kill the broker, the job or the sidecar with SIGKILL."""
        if victim == "broker":
            assert embedded.kill(self._stack_dir, "kafka")
        elif victim == "job":
            self.relay.job.kill()
        else:
            self.sidecar.kill()

    def bring_back(self) -> None:
        """Start all three again."""
        embedded.up(self._stack_dir)
        self.relay.restart()
        self.sidecar = self._served()

    def written(self) -> dict[str, float]:
        """Expected values of the sidecar's counters, from the topics and the oracle."""
        verdict, topics = self.relay.audit(), self._installed.topics
        decided = (Kind.ALERT, Kind.PASSED, Kind.SUPPRESSED)
        return {
            "fraud_transactions_total": sum(verdict.kinds[kind] for kind in decided),
            "fraud_duplicates_total": verdict.kinds[Kind.DUPLICATE],
            "fraud_alerts_total": len(self._installed.read(topics.fraud_alerts)),
            "fraud_shadow_alerts_total": len(self._installed.read(topics.shadow_alerts)),
            **{
                f"fraud_dead_letters_total{{{reason}}}": count
                for reason, count in self._installed.reasons().items()
            },
        }

    def deciders(self) -> dict[str, set[str]]:
        """Card -> roles that decided its alerts while a canary was in force and did not fail to score."""
        result: dict[str, set[str]] = {}
        for record in self._installed.read(self._installed.topics.fraud_alerts):
            alert = json.loads(record.value or b"")
            if alert["membership"] is not None and alert["challenger_failure"] is None:
                result.setdefault(alert["card_id"], set()).add(alert["role"])
        return result

    def shown(self) -> dict[str, Any]:
        """The rollout as the sidecar returns it."""
        content: dict[str, Any] = json.loads(self.sidecar.get(f"v1/rollouts/{ROLLOUT}")[1])
        return content


@pytest.fixture(scope="module")
def scene(relay: Relay, stack_dir: Path) -> Iterator[Scene]:
    result = Scene(relay, stack_dir)
    try:
        relay.burst()
        result.open_canary()
        yield result
    finally:
        result.sidecar.kill()


@only_thorough
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_counters_and_rollout_are_right_after_kills_in_any_order(
    scene: Scene, order: tuple[str, ...], wait_for: Callable[..., object]
) -> None:
    relay, chance = scene.relay, random.Random(ORDERS.index(order))
    relay.burst()
    is_paused = ORDERS.index(order) % 2 == 0
    scene.step(Type.PAUSED if is_paused else Type.RESUMED)
    for victim in order:
        time.sleep(chance.uniform(0, 1.0))
        scene.kill(victim)
    scene.bring_back()
    relay.burst()
    expected = scene.written()

    def is_told() -> bool:
        samples = scene.sidecar.samples()
        return {name: samples.get(name) for name in expected} == expected

    wait_for(is_told, deadline_s=60, what=f"{expected}")
    wait_for(lambda: scene.shown()["state"] == "applied", deadline_s=60, what="the applied event")
    assert scene.shown()["phase"] == ("paused" if is_paused else "canary")
    salt = salt_of(trained(relay.installed.settings.mlflow_tracking_uri).ref.name)
    deciders = scene.deciders()
    assert set().union(*deciders.values()) == {"canary", "champion"}
    for card, roles in deciders.items():
        assert roles == {"canary" if is_member(card, salt, SHARE_BP) else "champion"}, card
