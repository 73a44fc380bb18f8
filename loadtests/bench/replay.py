"""Replay benchmark: the speed of archive, replay, comparison and backtest, and what alerts wait for them."""

import time
from collections.abc import Iterator

from deploy.local.child import Child
from deploy.local.launch import FRAUD
from deploy.replay import record, switching
from loadtests.bench.history import History
from loadtests.bench.job_usage import JobUsage
from loadtests.bench.latency import latency_of, percentiles, wait
from loadtests.bench.measure import Figure
from loadtests.bench.restart import SETTLE_S, longest_gap
from loadtests.bench.rig import BenchError, Rig
from loadtests.bench.throughput import Backlog
from loadtests.rig.report import Say
from models.rollouts.events import Demands

ALONE, BESIDE = "alone", "beside"
"""Names of the replays without and with load on the live job."""
WARM_UP_S = 30.0
STRETCH_S = 40.0
"""Length of the measurements of the live job alone, and beside the archiver, seconds."""
LONGEST_S = 3_600.0
"""Limit for the load and for each command, seconds."""


def measure(rig: Rig, backlog: Backlog, live: float, say: Say) -> Iterator[Figure]:
    """Archive, replay, compare and backtest a log; then archive and replay beside a load, switch, go back.

    Args:
        live: transactions per second of that load; 0: there is none.
    """
    events = backlog.events
    say(f"sending {events:,} transactions")
    History(rig.installed, events, backlog.span_s).send(events)
    rig.start_job()
    rig.catch_up(say)
    archive = rig.options.data_dir / "archive"
    took = _run(rig, say, "archive", "run", str(archive), "--until-now")
    yield Figure("archive", events / took, "transactions/s", "one process, its start included")
    size = sum(file.stat().st_size for file in archive.rglob("*.parquet"))
    yield Figure("archive, bytes", size / events, "bytes/transaction", "of all topics")
    yield _replay(rig, say, ALONE, "the topic")
    took = _run(rig, say, "replay", "compare", ALONE)
    yield Figure(f"compare {events:,}", took, "s", "nothing was changed; the command's start included")
    yield _replay(rig, say, f"{ALONE}-archive", "the archive", "--archive", str(archive))
    took = _run(rig, say, "backtest", str(archive), "--threshold", "0.5", "--days", "10")
    yield Figure(f"backtest {events:,}", took, "s", "of another threshold; the command's start included")
    if live:
        yield from _beside_load(rig, live, say)
    rig.stop_job()


def _beside_load(rig: Rig, rate: float, say: Say) -> Iterator[Figure]:
    archive = rig.options.data_dir / "archive"
    watch, settings = rig.installed.watch_alerts(), rig.installed.settings
    stretches: dict[str, tuple[float, float]] = {}
    with rig.feeding(rate, LONGEST_S):
        say("warming up")
        time.sleep(WARM_UP_S)
        stretches["alone"] = _stretch(rig, say, "alone")
        with _command(rig, "archive", "run", str(archive), "--metrics-port", "0") as archiver:
            time.sleep(SETTLE_S)
            usage = JobUsage(archiver.pid)
            usage.sample()
            stretches["beside the archiver"] = _stretch(rig, say, "beside the archiver")
            usage.sample()
        yield Figure("archiver's cpu", usage.cores(), "cores", "in the measured time")
        begin = time.time()
        yield _replay(rig, say, BESIDE, f"the topic, beside {rate:,.0f} transactions/s")
        stretches["beside a replay"] = begin * 1000, time.time() * 1000
        say("switch, under load")
        replay, live = record.load(settings, BESIDE)
        switched = longest_gap(rig, switching.begin_switch(live, replay, Demands(), takes_partial=False))
        say("back, under load")
        replay, live = record.load(settings, BESIDE)
        back = longest_gap(rig, switching.begin_back(live, replay))
    rig.catch_up(say)
    alerts = watch.finish()
    for name, stretch in stretches.items():
        yield from percentiles(latency_of(alerts, *stretch), name)
    for act, gap in (("switch", switched), ("back", back)):
        yield Figure(f"longest time between two alerts, {act}", gap, "s", "under the same load")


def _stretch(rig: Rig, say: Say, what: str) -> tuple[float, float]:
    """Wait; return begin and end, ms since 1970-01-01 UTC."""
    begin = time.time()
    wait(rig, begin + STRETCH_S, lambda left: say(f"measuring {what}, {left:.0f} s left"))
    return begin * 1000, time.time() * 1000


def _replay(rig: Rig, say: Say, name: str, of: str, *options: str) -> Figure:
    _run(rig, say, "replay", "start", name, *options)
    replay, _ = record.load(rig.installed.settings, name)
    return Figure(f"replay of {of}", replay.rate, "transactions/s", "its job's start left out")


def _run(rig: Rig, say: Say, *arguments: str) -> float:
    """Run a `fraud` command to its end; return how long it took, seconds."""
    say(f"fraud {' '.join(arguments)}")
    begin = time.monotonic()
    with _command(rig, *arguments) as command:
        if code := command.exit_code(LONGEST_S):
            raise BenchError(f"{command.name} ended with status {code}; see {command.log_file}")
        return time.monotonic() - begin


def _command(rig: Rig, *arguments: str) -> Child:
    return Child(
        f"fraud {arguments[0]}",
        [*FRAUD, *arguments],
        rig.options.data_dir / "logs" / f"{arguments[0]}.log",
        rig.installed.settings.variables(),
    )
