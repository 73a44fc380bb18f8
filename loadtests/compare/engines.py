"""The compared engines: this project as it comes, the others both as they come and tuned for low latency."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.local import java, kafka
from deploy.local.child import Child
from deploy.local.launch import FRAUD
from loadtests.compare.errors import CompareError
from loadtests.compare.kafka_streams.build import build
from loadtests.compare.quix import venv
from loadtests.rig.report import Say
from streaming_job import environment
from streaming_job.contracts.topics import Topics
from streaming_job.settings import Arrival, JobSettings

HEAP = "-Xmx1g"


@dataclass(frozen=True)
class Deployment:
    """Addresses, names and paths of an engine's run."""

    bootstrap_servers: str
    mlflow_tracking_uri: str
    topics: Topics
    group: str
    """Consumer group, job id or application id."""
    model: Path
    """File with the exported model and policy (loadtests/compare/exported.py)."""
    directory: Path
    """The engine's own directory for state and logs."""
    threads: int
    """Parallelism: key groups, stream threads or processes."""
    venvs: Path
    """Directory of the environments with Quix Streams."""
    wait_for_snapshot_s: int
    """As in `JobSettings`."""


@dataclass(frozen=True)
class Variant:
    """One engine with some settings."""

    name: str
    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings by the engine's own names; empty: defaults."""
    decides: bool = True
    """Whether its alerts can be compared with those of the others."""


OURS, FLOOR, STREAMS, QUIX = "ours", "floor", "streams", "quix"
TUNED_STREAMS = {
    "statestore.cache.max.bytes": 64 << 20,
    "producer.linger.ms": 1,
    # the broker often refuses the start of a Kafka transaction that soon follows another; the producer then
    # tries again, by default after 100 ms
    "producer.retry.backoff.ms": 5,
    # how long the partitions of a killed instance wait for it
    "consumer.session.timeout.ms": 6_000,
    "consumer.heartbeat.interval.ms": 1_000,
}
TUNED_QUIX = {
    "commit_interval": 0.02,
    "consumer_poll_timeout": 0.01,
    "producer_extra_config": {"linger.ms": 1, "retry.backoff.ms": 5},
}
VARIANTS = (
    Variant(OURS, "this project"),
    Variant(FLOOR, "Kafka's transactions alone", decides=False),
    *(
        Variant(
            f"{STREAMS}-{interval_ms}",
            f"Kafka Streams, {interval_ms} ms",
            {**TUNED_STREAMS, "commit.interval.ms": interval_ms},
        )
        for interval_ms in (5, 10, 25)
    ),
    Variant(f"{STREAMS}-default", "Kafka Streams as it comes"),
    Variant(QUIX, "Quix Streams, tuned", TUNED_QUIX),
    Variant(f"{QUIX}-default", "Quix Streams as it comes"),
)
ALL = ",".join(variant.name for variant in VARIANTS)


def chosen(names: str) -> list[Variant]:
    """Return the variants of a comma-separated list, in the order of VARIANTS.

    Raises:
        CompareError: one of them is unknown.
    """
    selected = {name.strip() for name in names.split(",")}
    if unknown := selected - {variant.name for variant in VARIANTS}:
        raise CompareError(
            f"there is no engine {', '.join(sorted(unknown))}; choose from "
            f"{', '.join(variant.name for variant in VARIANTS)}"
        )
    return [variant for variant in VARIANTS if variant.name in selected]


def prepare(variant: Variant, deployment: Deployment, say: Say) -> Callable[[], Child]:
    """Build an engine if needed; return a function that starts it, and starts it again after its end."""
    deployment.directory.mkdir(parents=True)
    kind = variant.name.partition("-")[0]
    commands = {OURS: _ours, FLOOR: _floor, STREAMS: _streams, QUIX: _quix}
    command, environment = commands[kind](variant, deployment, say)

    def start() -> Child:
        say(f"starting {variant.title}")
        return Child("the engine", command, deployment.directory / "engine.log", environment)

    return start


def _ours(variant: Variant, deployment: Deployment, say: Say) -> tuple[list[str], dict[str, str]]:
    settings = environment.settings(
        JobSettings,
        job_id=deployment.group,
        bootstrap_servers=deployment.bootstrap_servers,
        topics=deployment.topics,
        mlflow_tracking_uri=deployment.mlflow_tracking_uri,
        checkpoint=str(deployment.directory / "checkpoint"),
        work_dir=deployment.directory / "work",
        key_groups=deployment.threads,
        wait_for_snapshot_s=deployment.wait_for_snapshot_s,
        arrival=Arrival.CREATE,  # as all engines, it reads the tape's timestamps
        **variant.settings,
    )
    return [*FRAUD, "job", "run"], settings.variables()


def _floor(variant: Variant, deployment: Deployment, say: Say) -> tuple[list[str], dict[str, str]]:
    config = {
        "bootstrap_servers": deployment.bootstrap_servers,
        "group": deployment.group,
        "transactions": deployment.topics.transactions,
        "alerts": deployment.topics.fraud_alerts,
        "processes": deployment.threads,
    }
    return [sys.executable, "-m", "loadtests.compare.floor", json.dumps(config)], {}


def _streams(variant: Variant, deployment: Deployment, say: Say) -> tuple[list[str], dict[str, str]]:
    say("compiling the Kafka Streams program")
    class_path = build(deployment.directory / "classes", say)
    properties = {
        "application.id": deployment.group,
        "bootstrap.servers": deployment.bootstrap_servers,
        "state.dir": deployment.directory / "state",
        "num.stream.threads": deployment.threads,
        "processing.guarantee": "exactly_once_v2",
        **variant.settings,
    }
    file = deployment.directory / "streams.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    topics = deployment.topics
    return [
        str(java.find().executable), HEAP, f"-Dlog4j2.configurationFile={kafka.LOGGING_FILE}",
        "-cp", class_path, "compare.Main", str(file), str(deployment.model),
        topics.transactions, topics.profiles, topics.fraud_alerts,
    ], {}  # fmt: skip


def _quix(variant: Variant, deployment: Deployment, say: Say) -> tuple[list[str], dict[str, str]]:
    python = venv.ensure(deployment.venvs, say)
    topics = deployment.topics
    config = {
        "bootstrap_servers": deployment.bootstrap_servers,
        "group": deployment.group,
        "model": str(deployment.model),
        "state_dir": str(deployment.directory / "state"),
        "transactions": topics.transactions,
        "profiles": topics.profiles,
        "alerts": topics.fraud_alerts,
        "processes": deployment.threads,
        "settings": dict(variant.settings),
    }
    root = str(Path(__file__).parents[2])
    return [str(python), "-m", "loadtests.compare.quix.main", json.dumps(config)], {"PYTHONPATH": root}
