"""Measurement of one engine on the tape, the recorded input: a backlog, a steady rate, a kill under load."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deploy.local import state
from deploy.local import topics as broker
from deploy.local.child import Child
from deploy.local.waiting import Patience
from loadtests.audit.topic_log import TopicLog
from loadtests.bench.job_usage import JobUsage
from loadtests.bench.rig import Rig
from loadtests.compare.alerts import Alerts
from loadtests.compare.engines import Deployment, Variant, prepare
from loadtests.compare.errors import CompareError
from loadtests.compare.tape import LoadProfile, Tape
from loadtests.rig.pace import Pace, SteadyClock
from loadtests.rig.report import Say
from loadtests.rig.send import Sender
from loadtests.rig.watch import AlertWatch
from streaming_job.contracts.topics import Topics
from streaming_job.log.clients import Address

STOP_S = 90.0
PATIENCE_S = 180.0
"""Time limit without any progress, seconds."""
POLL_S = 0.01
SAY_S = 2.0
LOOK_S = 1.5
"""At the steady rate, processes are first sampled at most this long before the warm-up ends, seconds.
Sampling delays the feed, so it must not happen while latency is measured; the second sample follows the last
send."""
IN_FLIGHT_MS = 300.0
"""Alerts received within this time after a kill may have been committed before it, ms."""
LEAD_S = 0.5
"""Time before the first transaction of the steady rate, seconds."""
SHARED = ("profiles", "model_rollouts")
"""Topics shared by all engines."""


@dataclass(frozen=True)
class Run:
    """Measurements of one engine."""

    variant: Variant
    alerts: Alerts
    backlog_per_s: float
    """Transactions per second, from when consumers can read the backlog to the commit of its last offset."""
    backlog_cpu_us: float
    """CPU time of the engine per transaction of the backlog, microseconds."""
    latencies_ms: npt.NDArray[np.float64]
    """Times from intended sending to receipt of the alert, after the warm-up, ms."""
    cores: float
    """CPU cores of the engine at the steady rate."""
    broker_cores: float
    """CPU cores of Kafka in the same time."""
    memory_mib: float
    behind: int
    """Uncommitted transactions at the moment when all had been sent."""
    slip_p99_ms: float
    """p99 of the delays with which the feed sends, after the warm-up, ms."""
    recovery_s: float
    """Time from SIGKILL to the receipt of the next alert, the new start included, seconds."""


def topics_of(name: str) -> Topics:
    """Return the topics of one engine; only the tables are shared."""
    return Topics().renamed(lambda topic: f"compare-{name}-{topic}", but=SHARED)


def measure(
    variant: Variant, deployment: Deployment, rig: Rig, tape: Tape, load: LoadProfile, say: Say
) -> Run:
    """Run an engine over the tape."""
    servers, topics, clock = deployment.bootstrap_servers, deployment.topics, SteadyClock()
    brokers, topic = Address(servers), topics.transactions
    broker.create(servers, topics, replay=True)
    at_once = Sender(brokers, fixed={"transactional.id": f"compare-{topic}"}, stamped=True)
    at_once.send([tape.records(topic, 0, load.prime)], Pace.at_once())
    watch = AlertWatch(brokers, topics.fraud_alerts, clock_ns=clock.now_ns)
    watch.start()
    position = Position(TopicLog(servers), deployment.group, topic)
    kafka = state.load(rig.options.data_dir).servers["kafka"]
    start = prepare(variant, deployment, say)
    with start() as engine:
        _wait_until_committed(
            engine, position, position.targets(marked=True), f"{variant.title}: first transactions", say
        )
        used = JobUsage(engine.pid)
        used.sample()
        at_once.send([tape.records(topic, load.prime, tape.live_from)], Pace.at_once())
        began = time.monotonic()
        _wait_until_committed(
            engine, position, position.targets(marked=True), f"{variant.title}: backlog", say
        )
        elapsed = time.monotonic() - began
        used.sample()
        live = _Live(engine, JobUsage(engine.pid), JobUsage(kafka.pid), load, variant.title, say)
        sender, slips_us = Sender(brokers, clock=clock, stamped=True), []
        start_ms = clock.now_ms() + LEAD_S * 1_000
        sender.send(
            [tape.records(topic, tape.live_from, tape.kill_from)],
            Pace(start_ms, tape.live_start_ms),
            meanwhile=lambda: live((clock.now_ms() - start_ms) / 1_000),
            on_sent=lambda _, slip_us: slips_us.append(slip_us),
        )
        live.sample()
        targets = position.targets(marked=False)
        behind = position.behind(targets)
        _wait_until_committed(engine, position, targets, f"{variant.title}: the rest", say)
        live.engine_usage.measure_memory()
        kill = _Kill(engine, start, clock, load.kill_s / 2)
        sender.send(
            [tape.records(topic, tape.kill_from, len(tape))],
            Pace(clock.now_ms() + LEAD_S * 1_000, int(tape.arrivals[tape.kill_from])),
            meanwhile=kill,
        )
        with kill.again as engine_again:
            targets = position.targets(marked=False)
            _wait_until_committed(engine_again, position, targets, f"{variant.title}: after the kill", say)
            # the transaction of the killed process hides later alerts until it times out, unless the next
            # process has the same transactional id
            hidden = partial(position.log.unreadable, topics.fraud_alerts)
            _wait_until_none(engine_again, hidden, f"{variant.title}: behind an open transaction", say)
            engine_again.terminate(STOP_S)
    alerts = Alerts.of(watch.finish())
    due = start_ms + alerts.arrivals - tape.live_start_ms
    measured = (due >= start_ms + load.warm_up_s * 1_000) & (alerts.arrivals < tape.arrivals[tape.kill_from])
    if not measured.any():
        raise CompareError(
            "no alert was received in the measured time; give a higher --rate or a longer --for"
        )
    return Run(
        variant,
        alerts,
        load.backlog / elapsed,
        used.seconds() / load.backlog * 1e6,
        (alerts.received - due)[measured],
        live.engine_usage.cores(),
        live.broker_usage.cores(),
        live.engine_usage.peak_memory / 2**20,
        behind,
        float(np.percentile(np.concatenate(slips_us)[round(load.warm_up_s * load.rate) :], 99) / 1_000),
        kill.recovery_s(alerts),
    )


class Position(NamedTuple):
    """Committed offsets of an engine's consumer group on the topic of transactions."""

    log: TopicLog
    group: str
    topic: str

    def targets(self, *, marked: bool) -> dict[int, int]:
        """Read the offset after the last record of each partition.

        Args:
            marked: whether the last record is a transaction marker; it is then left out, because not every
                client commits it.
        """
        return {partition: max(0, end - marked) for partition, end in self.log.ends(self.topic).items()}

    def behind(self, targets: dict[int, int]) -> int:
        """Count the uncommitted records before `targets`."""
        committed = self.log.committed(self.group, (self.topic,))
        return sum(
            max(0, target - committed.get((self.topic, partition), 0))
            for partition, target in targets.items()
        )


class _Live:
    """Sampler of the processes at the steady rate: near the end of the warm-up, and after the last send."""

    def __init__(
        self,
        engine: Child,
        engine_usage: JobUsage,
        broker_usage: JobUsage,
        load: LoadProfile,
        title: str,
        say: Say,
    ) -> None:
        self.engine_usage, self.broker_usage = engine_usage, broker_usage
        self._engine, self._load, self._title, self._say = engine, load, title, say
        self._warm = False

    def __call__(self, since_start_s: float) -> None:
        self._engine.check()
        self._say(
            f"{self._title}: {self._load.rate:,.0f} a second, {self._load.live_s - since_start_s:.0f} s left"
        )
        if not self._warm and since_start_s >= self._load.warm_up_s - LOOK_S:
            self._warm = True
            self.sample()

    def sample(self) -> None:
        """Sample the CPU times."""
        self.engine_usage.sample()
        self.broker_usage.sample()


class _Kill:
    """SIGKILL to an engine under load, and its next start."""

    def __init__(self, engine: Child, start: Callable[[], Child], clock: SteadyClock, after_s: float) -> None:
        self._engine, self._start, self._clock = engine, start, clock
        self._kill_ms = clock.now_ms() + after_s * 1_000
        self._again: Child | None = None

    def __call__(self) -> None:
        if self._again is None and self._clock.now_ms() >= self._kill_ms:
            self._kill_ms = self._clock.now_ms()
            self._engine.kill()
            self._again = self._start()

    @property
    def again(self) -> Child:
        """The second process; it is started if the load has ended before the kill."""
        if self._again is None:
            self._kill_ms = 0.0
            self()
        assert self._again is not None
        return self._again

    def recovery_s(self, alerts: Alerts) -> float:
        """Return the time from the kill to the receipt of the first alert that the second process wrote."""
        later = alerts.received[alerts.received > self._kill_ms + IN_FLIGHT_MS]
        return float((later.min() - self._kill_ms) / 1_000) if later.size else float("nan")


def _wait_until_committed(
    engine: Child, position: Position, targets: dict[int, int], subject: str, say: Say
) -> None:
    """Wait until the engine has committed everything up to `targets`."""
    _wait_until_none(engine, partial(position.behind, targets), subject, say)


def _wait_until_none(engine: Child, count: Callable[[], int], subject: str, say: Say) -> None:
    """Wait until none of what is counted remains."""
    patience, least, last_report = Patience(PATIENCE_S, POLL_S), math.inf, 0.0
    while remaining := count():
        now = time.monotonic()
        least = min(least, remaining)
        if now > last_report + SAY_S:
            last_report = now
            say(f"{subject}, {remaining:,} to go")
        engine.check()
        text = f"{subject}: no progress for {PATIENCE_S:.0f} s, {remaining:,} to go"
        patience.wait(partial(CompareError, text), least)
