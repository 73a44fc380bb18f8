"""Logs of a correct job after one commit, in which tests plant faults."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping

from harness import settings_of_nowhere
from harness.log_world import START
from oracle_world import World, load

from loadtests.audit.topic_log import TopicReadError
from loadtests.audit.trial_audit import PLAIN
from loadtests.audit.verify import AuditResult, verify
from loadtests.oracle import ExpectedOutcome, Kind, ProfileLog, Record, RolloutLog
from models.score_histogram import BOUNDS
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import COUNTED, DIGESTED, TABLE, Topics
from streaming_job.log.losses import FIELD

TOPICS = Topics(record_schemas="record-schemas")
SETTINGS = settings_of_nowhere.settings(job_id="job", topics=TOPICS)
ALERTS = tuple(getattr(TOPICS, field) for field in DIGESTED)
"""The outputs whose records the oracle computes whole."""
SIDES = ("both", "only_champion", "only_challenger")
RELEASE = "0.1.0+0123abcd"
HEADERS = (("query_id", b"q"), ("key_group", b"0"), ("commit_id", b"1"), ("release", RELEASE.encode()))


class MemoryLog:
    """Topics as lists."""

    def __init__(self, topics: dict[str, list[Record]], group: Mapping[tuple[str, int], int]) -> None:
        self.topics, self.group = topics, dict(group)

    def committed(self, group: str, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
        assert group == "job"
        return self.group

    def ends(self, topic: str) -> dict[int, int]:
        return {0: len(self.topics[topic])}

    def beginnings(self, topic: str) -> dict[int, int]:
        if topic not in self.topics:
            raise TopicReadError(f"no topic {topic}")
        return {0: min((record.offset for record in self.topics[topic]), default=0)}

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None, starts: Mapping[int, int] | None = None
    ) -> Iterator[Record]:
        if topic not in self.topics:
            raise TopicReadError(f"no topic {topic}")
        starts = starts or {}
        return (
            r
            for r in list(self.topics[topic])
            if (ends is None or r.offset < ends.get(r.partition, 0))
            and r.offset >= starts.get(r.partition, 0)
        )


def letter_of(outcome: ExpectedOutcome, record: Record) -> Record:
    letter = {
        "schema_version": 1,
        "reason": outcome.reason.value,
        "detail": "for a person",
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "arrival_time": record.timestamp,
        "key_base64": base64.b64encode(record.key).decode(),
        "value_base64": base64.b64encode(record.value).decode(),
    }
    key: bytes | None = record.key
    if outcome.reason is Reason.CARD_NUMBER:
        key, size = None, {"value_bytes": len(record.value)}
        hidden = {"key_base64": None, "value_base64": None}
        letter |= {**hidden, **size, "value_sha256": hashlib.sha256(record.value).hexdigest()}
    return Record("dead-letters", 0, 0, START, key, json.dumps(letter).encode(), HEADERS)


def refused(world: World) -> list[ExpectedOutcome]:
    return ProfileLog().read(world.profiles)


def job_output(world: World) -> MemoryLog:
    """The log after a correct job has processed everything in one commit."""
    alerts: dict[str, list[Record]] = {name: [] for name in ALERTS}
    letters = []
    for record, outcome in zip(world.transactions, world.outcomes(), strict=True):
        for field, content in outcome.records:
            name = getattr(TOPICS, field)
            value = json.dumps({**content, "release": RELEASE}).encode()
            key = content[TABLE[field].key].encode()
            alerts[name].append(Record(name, 0, len(alerts[name]), START, key, value, HEADERS))
        if outcome.kind == Kind.DEAD_LETTER:
            letters.append(letter_of(outcome, record)._replace(offset=len(letters)))
    for outcome in RolloutLog().read(world.rollouts):
        record = world.rollouts[outcome.offset]
        letters.append(letter_of(outcome, record)._replace(offset=len(letters)))
    outputs = {**alerts, TOPICS.dead_letters: letters}
    topics = {
        **{name: [] for name in TOPICS.tables},
        "transactions": world.transactions,
        "bank.public.card_profiles": world.profiles,
        "model-rollouts": world.rollouts,
        **outputs,
        "job-progress": [progress(world, outputs)],
    }
    group = {
        ("transactions", 0): len(world.transactions),
        ("bank.public.card_profiles", 0): len(world.profiles),
        ("model-rollouts", 0): len(world.rollouts),
    }
    return MemoryLog(topics, group)


def digest(records: list[Record]) -> str:
    return hashlib.sha256(b"".join(record.value for record in records)).hexdigest()


def trials(world: World) -> dict[str, dict]:
    """The field `trials` of a progress record, in the form of the contract `job-progress.v2`."""
    result: dict[str, dict] = {}
    for (rollout_id, name), flat in world.oracle.trials.counts().items():
        trial: dict[str, object] = {plain: flat[plain] for plain in (*PLAIN, "seq")} | {"time_ms": 1.5}
        trial["champion_time_ms"] = 1.5
        trial |= {unit: {side: flat[f"{unit}.{side}"] for side in SIDES} for unit in ("card_hours", "cards")}
        for histogram in ("scores", "champion_scores"):
            scores = [flat[f"{histogram}.{n}"] for n in range(21)]
            trial[histogram] = {"le": list(BOUNDS), "counts": scores, "sum": 0.5}
        result.setdefault(rollout_id, {"seq": 3, "challengers": {}})["challengers"][name] = trial
    return result


def progress(world: World, outputs: dict[str, list[Record]]) -> Record:
    kinds = [outcome.kind for outcome in world.outcomes()]
    counts = {
        "transactions": sum(kinds.count(kind) for kind in (Kind.PASSED, Kind.ALERT, Kind.SUPPRESSED)),
        "duplicates": kinds.count(Kind.DUPLICATE),
        **{name: len(outputs[getattr(TOPICS, field)]) for field, name in COUNTED.items()},
        "late_table_changes": 0,
    }
    value = {
        "query_id": "q",
        "release": RELEASE,
        "key_group": 0,
        "key_groups": 1,
        "commit_id": 1,
        "counts": counts,
        "digests": {name: digest(outputs[getattr(TOPICS, field)]) for field, name in DIGESTED.items()},
        "trials": trials(world),
        "partitions": [
            {"topic": topic, "partition": 0, "start_offset": 0, "end_offset": len(records)}
            for topic, records in (
                ("transactions", world.transactions),
                ("bank.public.card_profiles", world.profiles),
                ("model-rollouts", world.rollouts),
            )
        ],
        "totals": {"since": 1, "commits": 1, "counts": counts, "trials": trials(world)},
    }
    if lost := world.losses.to_json():
        value[FIELD] = lost
    return Record("job-progress", 0, 0, START, b"job", json.dumps(value).encode(), HEADERS)


def audit(log: MemoryLog) -> AuditResult:
    return verify(log, SETTINGS, load)


def changed(record: Record, **fields: object) -> Record:
    return record._replace(value=json.dumps({**json.loads(record.value), **fields}).encode())


def counts(verdict: AuditResult) -> tuple[int, int, int, int]:
    findings = verdict.findings
    return findings.missing, findings.duplicated, findings.unexpected, findings.different
