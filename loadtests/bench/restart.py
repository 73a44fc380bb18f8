"""Restart benchmark: time without alerts while a job is started again or replaced, with many cards' state."""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from deploy.local.waiting import Patience
from loadtests.bench.history import History
from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, Rig
from loadtests.faults.installation import query_of
from loadtests.faults.job_process import PATIENCE_S
from loadtests.rig.report import Say
from loadtests.rig.watch import AlertWatch
from streaming_job.settings import JobSettings

MEANWHILE = 20_000
"""Transactions that arrive while no job runs; some of them alert."""
POLL_S = 0.02
LIVE_RATE = 2_000
SETTLE_S = 20.0
"""Time from the first alert under load to the SIGKILL, and before and after a takeover, seconds."""
POLLED_S = 0.5
KINDS = {"working copies at hand": False, "working copies lost": True}
"""Kind of restart -> whether the working copies are deleted first, as if the machine were a new one."""
TAKEOVERS = {
    "taken over with another number of key groups": False,
    "taken over by a job built from the log": True,
}
"""Kind of takeover -> whether the successor decides the log again, as another release does; otherwise it
takes the predecessor's state."""


def measure(rig: Rig, events: int, rounds: int, say: Say) -> Iterator[Figure]:
    """Build up the state, then kill and start the job repeatedly.

    Args:
        rounds: restarts of each of KINDS, kills under load, and takeovers under load.
    """
    say(f"sending {events:,} transactions")
    History(rig.installed, events).send(events)
    rig.start_job()
    rig.catch_up(say)
    for kind, lost in KINDS.items():
        seconds = []
        for number in range(1, rounds + 1):
            say(f"restart {number} of {rounds}, {kind}")
            seconds.append(_restarted(rig, lost, say))
        yield _median(f"start to first alert, {kind}", seconds)
    under_load = f"{LIVE_RATE:,} transactions a second go on"
    gaps = [_killed_live(rig, say) for _ in range(rounds)]
    yield _median("SIGKILL to next alert", gaps, f"started again at once; {under_load}")
    for takeover, from_log in TAKEOVERS.items():
        gaps = [_taken_over_live(rig, from_log, say) for _ in range(rounds)]
        yield _median(f"longest time between two alerts, {takeover}", gaps, under_load)
    recovered = [_recovered(rig, say) for _ in range(rounds)]
    log = rig.installed.count(rig.settings.topics.transactions)
    yield _median("checkpoint lost, start to first alert", recovered, f"rebuilt from {log:,} transactions")
    rig.stop_job()


def _median(name: str, seconds: Sequence[float], detail: str = "") -> Figure:
    return Figure(name, statistics.median(seconds), "s", detail, rounds=tuple(seconds))


def _successor(rig: Rig, **changes: object) -> JobSettings:
    """Return the settings of a job that takes over from the running one, with a checkpoint of its own."""
    before = rig.settings
    changes["checkpoint"] = tempfile.mkdtemp(prefix="successor-", dir=rig.options.data_dir)
    return before.model_copy(update={**changes, "predecessor": query_of(before.checkpoint)})


def _recovered(rig: Rig, say: Say) -> float:
    """Lose the checkpoint of a killed job; return the seconds from the next start to the first alert."""
    say("losing the checkpoint")
    successor = _successor(rig, predecessor_checkpoint="")
    rig.kill_job()
    shutil.rmtree(rig.settings.checkpoint)
    return _first_alert(rig, lambda: rig.replace_job(successor), say)


def _taken_over_live(rig: Rig, from_log: bool, say: Say) -> float:
    """Return the longest time between two alerts in seconds, while a successor takes over under load."""
    before = rig.settings
    if from_log:
        successor = _successor(rig, predecessor_checkpoint="")
    else:
        successor = _successor(
            rig, predecessor_checkpoint=before.checkpoint, key_groups=1 + before.key_groups % 2
        )
    with rig.feeding(LIVE_RATE, 2 * PATIENCE_S):
        watch = rig.installed.watch_alerts()
        say(f"{LIVE_RATE:,} transactions a second, and a successor")
        _wait_for_alert(rig, watch, time.time())
        watch.finish()
        gap = longest_gap(rig, successor)
    rig.catch_up(say)
    return gap


def longest_gap(rig: Rig, successor: JobSettings) -> float:
    """Have a successor take over; return the longest time between two alerts in seconds."""
    watch = rig.installed.watch_alerts()
    time.sleep(SETTLE_S)
    rig.replace_job(successor)
    time.sleep(SETTLE_S)
    received = [alert.at_ns for alert in watch.finish()]
    return max(later - earlier for earlier, later in pairwise(received)) / 1e9


def _killed_live(rig: Rig, say: Say) -> float:
    """Return the seconds from the SIGKILL of a job under load to the first alert of the next one."""
    watch = rig.installed.watch_alerts()
    with rig.feeding(LIVE_RATE, 2 * PATIENCE_S):
        say(f"{LIVE_RATE:,} transactions a second, then a SIGKILL")
        _wait_for_alert(rig, watch, time.time())
        time.sleep(SETTLE_S)
        begin = time.time()
        rig.kill_job()
        rig.start_job()
        # at first, alerts that the killed job committed may still reach the reader: they do not count
        first = _wait_for_alert(rig, watch, begin + POLLED_S)
    watch.finish()
    rig.catch_up(say)
    return first - begin


def _wait_for_alert(rig: Rig, watch: AlertWatch, after: float) -> float:
    """Wait for the first alert received at or after a time, and return its time of receipt.

    Both times are seconds since 1970-01-01 UTC.
    """
    patience = Patience(PATIENCE_S, POLL_S)
    while True:
        received = next((alert.at_ns / 1e9 for alert in watch.take() if alert.at_ns / 1e9 >= after), None)
        if received is not None:
            return received
        rig.check()
        patience.wait(lambda: BenchError(f"no alert in {PATIENCE_S:.0f} s; see {rig.installed.directory}"))


def _restarted(rig: Rig, lost: bool, say: Say) -> float:
    """Kill and start the job; returns the seconds from the start to the first alert's receipt."""
    rig.kill_job()
    if lost:
        shutil.rmtree(rig.settings.work_dir)
    return _first_alert(rig, rig.start_job, say)


def _first_alert(rig: Rig, start: Callable[[], None], say: Say) -> float:
    """Start a job behind some transactions; return the seconds until its first alert is received."""
    watch = rig.installed.watch_alerts()
    rig.installed.send(MEANWHILE)
    begin = time.time()
    start()
    first = _wait_for_alert(rig, watch, begin)
    watch.finish()
    rig.catch_up(say)
    return first - begin
