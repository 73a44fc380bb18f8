"""The choices that a job's first start has fixed, beside the settings here, and what changes each. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streaming_job.progress.record import ROLLOUT_TOPICS
from streaming_job.settings import DECISIVE, JobSettings, as_text

START = "fraud job run"
RESTART = f"stop the job with SIGTERM; {START} with the new value"
MOVE = "the cards move; the steps: fraud job status --move-to <topic> [--partitioner <partitioner>]"
REPLAY = "fraud replay start <name> {}--follow, then fraud replay switch <name>"
DELAY = REPLAY.format("--label-delay-days <n> ")
OTHERS = "fraud replay start <name> --model <model>/<version>, then fraud replay switch <name>"
UNMOVED = "the cards of a job that keeps merchant facts do not move; first turn these off"
NONE = "none"
"""In place of a topic that a job does not have."""
OFF = "off, with the log read anew: {} FRAUD_MERCHANT_FACTS=false {}"


@dataclass(frozen=True)
class Choice:
    """One fixed choice."""

    name: str
    """Its setting, or what it is."""
    running: str
    """Value by which the job runs, as its progress records say; "" if they do not say it."""
    here: str
    """Value in the environment; "" if no setting has it."""
    change: str
    """How it is changed; "" if it is not a choice."""

    @property
    def differs(self) -> bool:
        """Whether a start with the settings here is another job than the one that runs."""
        return bool(self.running and self.here) and self.running != self.here


def choices(records: Mapping[int, Mapping[str, Any]], settings: JobSettings) -> Iterator[Choice]:
    """Yield the fixed choices of a job.

    Args:
        records: newest progress record of each key group of the query that has written last; not empty.
        settings: those of the environment.
    """
    record = records[min(records)]
    layout = record.get("layout", {})
    successor = f"FRAUD_PREDECESSOR={record['query_id']} FRAUD_CHECKPOINT=<an empty directory>"
    from_state = f"{successor} FRAUD_PREDECESSOR_CHECKPOINT=<this checkpoint>"
    delay = record.get("label_delay_ms")
    move = MOVE if delay is None else UNMOVED

    def taken_over(setting: str = "", option: str = "") -> str:
        # facts are written while the log is decided, so only a replay has those of another state
        return f"{from_state} {setting}{START}" if delay is None else REPLAY.format(option)

    release = taken_over(option="--release <program> ")
    yield Choice("release", str(record["release"]), "", f"{RESTART}, or beside it: {release}")
    yield Choice(
        "FRAUD_KEY_GROUPS",
        str(record["key_groups"]),
        str(settings.key_groups),
        taken_over("FRAUD_KEY_GROUPS=<n> ", "--key-groups <n> "),
    )
    yield Choice("FRAUD_CHECKPOINT", "", settings.checkpoint, taken_over())
    topic, transactions = str(layout.get("topic", "")), settings.topics.transactions
    yield Choice("FRAUD_TOPICS__TRANSACTIONS", topic, transactions, move)
    yield Choice("its partitions", str(layout.get("partitions", "")), "", move)
    partitioner = str(layout.get("partitioner", ""))
    yield Choice("FRAUD_PARTITIONER", partitioner, settings.partitioner.value, move)
    rollouts = [str(topic) for topic in record.get(ROLLOUT_TOPICS, [""])][-1]
    yield Choice("FRAUD_TOPICS__MODEL_ROLLOUTS", rollouts, settings.topics.model_rollouts, OTHERS)
    is_described = bool(layout)
    yield Choice(
        "FRAUD_MERCHANT_FACTS",
        as_text(delay is not None) if is_described else "",
        as_text(settings.merchant_facts),
        f"{DELAY}; {OFF.format(successor, START)}",
    )
    if delay is not None or settings.merchant_facts:
        yield Choice(
            "FRAUD_LABEL_DELAY_MS",
            "" if delay is None else str(delay),
            str(settings.label_delay_ms),
            DELAY,
        )
    used = record["settings"]  # empty in the first record after a takeover
    schemas, schemas_here = used.get("topics__record_schemas"), settings.topics.record_schemas
    if schemas or schemas_here:
        running = (schemas or NONE) if used else ""
        yield Choice("FRAUD_TOPICS__RECORD_SCHEMAS", running, schemas_here or NONE, RESTART)
    for name in DECISIVE:
        value = used.get(name)
        yield Choice(
            f"FRAUD_{name.upper()}",
            "" if value is None else as_text(value),
            as_text(settings.decisive[name]),
            RESTART,
        )
