"""A served sidecar and the output of a job, for the tests of the status page."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from harness.alert_records import alert
from harness.job_writer import Job
from harness.memory_rollouts import ref
from harness.rollout_records import challenger, event, proposed

from loadtests.simulator.rollouts import publish
from models.guards.policy import Guards
from models.policy import Policy
from models.rollouts.events import Type, installation
from service.app import create_app
from service.security import tokens
from service.security.roles import Role
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics
from streaming_job.labels.ledger import Ledger
from streaming_job.log import topic_reader

PARTITIONS = 2
PER_WRITE = 4
"""Growth of `commit_id` between progress records of a group; their totals count 100 transactions per id."""
EVERY_S = 0.25
SCORES = {"le": [step / 20 for step in range(1, 21)], "counts": [4_000] * 10 + [40] * 10 + [0], "sum": 1e4}
COUNTS: dict[str, Any] = {
    "transactions": 412_300, "decided": 41_180, "failures": 0, "both": 1_240, "only_champion": 31,
    "only_challenger": 58, "rows": 412_300, "time_ms": 148.0, "champion_time_ms": 131.0,
    "card_hours": {"both": 903, "only_champion": 22, "only_challenger": 41},
    "cards": {"both": 610, "only_champion": 15, "only_challenger": 27},
    "scores": SCORES, "champion_scores": SCORES,
}  # fmt: skip

GUARDS = {
    **Guards().to_json(),
    "rules": [*Guards().to_json()["rules"], {"name": "precision", "min_precision": 0.3}],
}
"""Guards with `precision`, which lacks data: the topics of shadow and suppressed alerts are missing."""


def burst(number: int, at_ms: int) -> dict[str, Any]:
    """An alert on the seventh payment in five minutes on a card that is used 0.4 times an hour."""
    values = {
        "count_5m": 7.0,
        "arrivals_5m": 7.0,
        "count_30d": 295.0,
        "merchants_1h": 5.0,
        "merchants_30d": 9.0,
    }
    return alert(
        number, at_ms, ("count_5m", "merchants_1h"), rules=["score", "velocity_5m"],
        features=values, country="DE", score=0.971,
    )  # fmt: skip


def spree(number: int, at_ms: int) -> dict[str, Any]:
    """An alert on a payment abroad, much greater than the card's others."""
    values = {
        "amount": 523.1,
        "ratio_median": 10.9,
        "ratio_robust": 10.2,
        "new_country": 1.0,
        "travel_speed": 2_312.0,
    }
    return alert(number, at_ms, ("amount", "travel_speed", "new_country"), features=values, score=0.874)


def blocked(number: int, at_ms: int) -> dict[str, Any]:
    """An alert on a payment of a blocked card."""
    return alert(number, at_ms, (), rules=["blocked_card"], decision="decline", score=0.021)


class World:
    """A served sidecar, and a job that writes from `start` or `work` until `rest` or `stop`."""

    def __init__(self, servers: str, topics: Topics, job_id: str, directory: Path, **settings: Any) -> None:
        self.topics = topics
        admin = AdminClient({"bootstrap.servers": servers})
        wanted = {
            topics.transactions: PARTITIONS, topics.fraud_alerts: PARTITIONS, topics.profiles: 1,
            topics.model_rollouts: 1, topics.job_progress: 1, topics.audit_log: 1, topics.labels: 1,
            topics.chargebacks: 1, topics.audit_refusals: 1,
        }  # fmt: skip
        present = admin.list_topics(timeout=30).topics
        new = [NewTopic(name, count, 1) for name, count in wanted.items() if name not in present]
        for created in admin.create_topics(new).values():
            created.result(30)
        file = directory / "tokens.json"
        self.tokens = {
            role.word: tokens.add(file, f"{role.word}-{name}", role, "root", 0)
            for role, name in zip(Role, ("vera", "olga", "anna"), strict=True)
        }
        self.settings = ServiceSettings(
            bootstrap_servers=servers, topics=topics, job_id=job_id, tokens_file=file,
            offsets_interval_s=0.2, limit_floor_s=1.0, max_progress_age_s=3.0, idle_after_s=30.0,
            verdict_window_s=20.0, **settings,
        )  # fmt: skip
        self.job = Job(self.settings)
        self._producer = Producer({"bootstrap.servers": servers})
        self._commit = 100
        self._ends = [0] * PARTITIONS
        self._writes, self._over = threading.Event(), threading.Event()
        self._writing = threading.Lock()  # else a write in progress commits what `rest` leaves waiting
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._server = uvicorn.Server(uvicorn.Config(create_app(self.settings), port=0, log_level="error"))
        self._serving = threading.Thread(target=self._server.run, daemon=True)

    def start(self) -> None:
        """Write rollouts, alerts and labels, start the sidecar, and let the job write."""
        self.roll_out()
        now = int(time.time() * 1000)
        makers = (blocked, spree, burst, spree, blocked, burst)
        for number, result in enumerate(makers):
            self.alert(result(number, now - 9_000 * (len(makers) - number)))
        self._label(0, verdict="fraud")
        self._label(4, verdict="genuine", reason="cardholder_confirmed")
        self._producer.produce(self.topics.fraud_alerts, b"no alert", partition=1)
        assert self._producer.flush(30) == 0
        self.work()
        self._writer.start()
        self._serving.start()

    def _label(self, number: int, **said: str) -> None:
        """Write an analyst's verdict on an alert."""
        known = alert(number, 10**12, ())
        row = {name: known[name] for name in ("card_id", "transaction_id")}
        row |= {"kind": "verdict", "source": "olga", "occurred_at": 1, "maturity": "final", **said}
        Ledger(self.settings.bootstrap_servers, {}, self.topics.labels).add([row])

    def roll_out(self) -> None:
        """Roll out a champion, and a canary for a tenth of the cards."""
        now = int(time.time() * 1000)
        steps = (
            proposed("march", challenger(ref(2), "march", policy=Policy(0.45, 6)), guards=GUARDS),
            event(Type.SHADOW_STARTED, "march", 2),
            event(Type.CANARY_SET, "march", 3, challenger="march"),
        )
        events = (
            *installation(ref(1), Policy(0.4, 6), "card-fraud-1", "anna", now, reason="the first"),
            *(replace(step, actor="olga", reason="retrained on March", created_at=now) for step in steps),
        )
        publish(events, self.settings.bootstrap_servers, self.topics.model_rollouts)

    def alert(self, record: dict[str, Any]) -> None:
        """Write one more alert."""
        partition = record["source"]["partition"]
        self._producer.produce(self.topics.fraud_alerts, json.dumps(record).encode(), partition=partition)
        assert self._producer.flush(30) == 0

    def bearer(self, role: str) -> dict[str, str]:
        """Headers of a request with a role's token."""
        return {"Authorization": f"Bearer {self.tokens[role]}"}

    @property
    def url(self) -> str:
        (server,) = self._server.servers
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    @property
    def is_serving(self) -> bool:
        return self._server.started

    def work(self) -> None:
        """Let the job write."""
        self._writes.set()

    def rest(self, waiting: int) -> None:
        """Stop the job's writes, and leave records waiting in each partition."""
        with self._writing:
            self._writes.clear()
            for partition in range(PARTITIONS):
                self.job.feed(waiting, partition)

    def stop(self) -> None:
        """Stop the job and the sidecar."""
        self._over.set()
        self._writes.set()
        self._server.should_exit = True
        self._writer.join(30)
        self._serving.join(30)

    def _write(self) -> None:
        while not self._over.wait(EVERY_S):
            self._writes.wait()
            with self._writing:
                if self._writes.is_set():
                    self._write_once()

    def _write_once(self) -> None:
        self._commit += PER_WRITE
        for group in range(PARTITIONS):
            self.job.feed(3, group)
            self._write_group(group)

    def _write_group(self, group: int) -> None:
        now, start = int(time.time() * 1000), self._ends[group]
        end = self._ends[group] = self._end(self.topics.transactions, group)
        events = self._end(self.topics.model_rollouts, 0)
        times = {"max_event_time": now - 40, "event_time": now - 60, "watermark": now - 400}
        own = {"topic": self.topics.transactions, "partition": group, "start_offset": start, **times}
        table = {"topic": self.topics.model_rollouts, "partition": 0, "start_offset": 0}
        canary = {"rollout_id": "march", "seq": 3, "type": "canary_set", "offset": 4}
        self.job.write(
            self._commit, end=end, key_group=group, key_groups=PARTITIONS, owner="i/1",
            started_at=now - 9, written_at=now,
            partitions=[
                {**own, "end_offset": end, "active_at": now},
                {**table, **dict.fromkeys(times), "end_offset": events, "active_at": now},
            ],
            latency_ms={"le": [2, 5, 10, 20, 50], "counts": [2, 30, 52, 14, 2, 0], "sum": 780},
            applied=[{**canary, "held_from": {str(group): 811 + group}}],
            trials={"march": {"seq": 3, "challengers": {"march": COUNTS}}},
        )  # fmt: skip

    def _end(self, topic: str, partition: int) -> int:
        _, end = topic_reader.offsets(self.job.group, TopicPartition(topic, partition))
        return int(end)
