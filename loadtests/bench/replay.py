"""Replay benchmark: the speed of archive, replay, comparison and backtest, and what alerts wait for them."""

import sys
import time
from collections.abc import Iterator

from deploy.local.child import Child
from deploy.replay import record, switching
from loadtests.bench.history import History
from loadtests.bench.job_usage import JobUsage
from loadtests.bench.latency import latency_figures
from loadtests.bench.measure import Figure, Result
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


def measure(rig: Rig, backlog: Backlog, live: float, say: Say) -> Iterator[Result]:
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
    yield Figure("archive", events / took, "transactions/s", (), "one process, its start included")
    size = sum(file.stat().st_size for file in archive.rglob("*.parquet"))
    yield Figure("archive, bytes", size / events, "bytes/transaction", (), "of all topics")
    yield _replay(rig, say, ALONE, "the topic")
    took = _run(rig, say, "replay", "compare", ALONE)
    yield Figure(f"compare {events:,}", took, "s", (), "all alerts equal; the command's start included")
    yield _replay(rig, say, f"{ALONE}-archive", "the archive", "--archive", str(archive))
    took = _run(rig, say, "backtest", str(archive), "--threshold", "0.5", "--days", "10")
    yield Figure(f"backtest {events:,}", took, "s", (), "of another threshold; the command's start included")
    if live:
        yield from _beside_load(rig, live, say)
    rig.stop_job()


def _beside_load(rig: Rig, rate: float, say: Say) -> Iterator[Result]:
    archive = rig.options.data_dir / "archive"
    watch, settings = rig.installed.watch_alerts(), rig.installed.settings
    stretches: dict[str, tuple[float, float]] = {}
    gaps: dict[str, float] = {}
    with rig.feeding(rate, LONGEST_S):
        say("warming up")
        time.sleep(WARM_UP_S)
        stretches["alone"] = _stretch(rig, STRETCH_S)
        with _command(rig, "archive", "run", str(archive), "--metrics-port", "0") as archiver:
            time.sleep(SETTLE_S)
            say("measuring beside the archiver")
            usage = JobUsage(archiver.pid)
            usage.sample()
            stretches["beside the archiver"] = _stretch(rig, STRETCH_S)
            usage.sample()
        yield Figure("archiver's cpu", usage.cores(), "cores", (), "in the measured time")
        begin = time.time()
        yield _replay(rig, say, BESIDE, f"the topic, beside {rate:,.0f} transactions/s")
        stretches["beside a replay"] = begin * 1000, time.time() * 1000
        for act in ("switch", "back"):
            replay, live = record.load(settings, BESIDE)
            if act == "switch":
                successor = switching.begin_switch(live, replay, Demands(), takes_partial=False)
            else:
                successor = switching.begin_back(live, replay)
            say(f"{act}, under load")
            gaps[act] = longest_gap(rig, successor)
    rig.catch_up(say)
    alerts = watch.finish()
    for name, stretch in stretches.items():
        yield from latency_figures(alerts, *stretch, of=name)
    for act, gap in gaps.items():
        yield Figure(f"longest time between two alerts, {act}", gap, "s", (), "under the same load")


def _stretch(rig: Rig, for_s: float) -> tuple[float, float]:
    """Wait; return begin and end, ms since 1970-01-01 UTC."""
    begin = time.time()
    while time.time() < begin + for_s:
        rig.check()
        time.sleep(1.0)
    return begin * 1000, time.time() * 1000


def _replay(rig: Rig, say: Say, name: str, of: str, *options: str) -> Figure:
    _run(rig, say, "replay", "start", name, *options)
    replay, _ = record.load(rig.installed.settings, name)
    return Figure(f"replay of {of}", replay.rate, "transactions/s", (), "its job's start left out")


def _run(rig: Rig, say: Say, *arguments: str) -> float:
    """Run a `fraud` command to its end; return how long it took, seconds."""
    say(f"fraud {' '.join(arguments)}")
    begin = time.monotonic()
    with _command(rig, *arguments) as command:
        if code := command.exit_code(LONGEST_S):
            raise BenchError(f"{command.name} ended with status {code}; see {command.log_file}")
        return time.monotonic() - begin


def _command(rig: Rig, *arguments: str) -> Child:
    name, log = " ".join(arguments[:2]), rig.options.data_dir / "logs" / f"{'-'.join(arguments[:3:2])}.log"
    return Child(
        f"fraud {name}",
        [sys.executable, "-m", "deploy.cli", *arguments],
        log,
        rig.installed.settings.variables(),
    )
