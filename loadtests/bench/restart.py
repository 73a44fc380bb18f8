"""How long a job that was killed takes from its start to its first alert, with the state of many cards."""

import shutil
import statistics
import time
from collections.abc import Iterator

from loadtests.bench.alert_reader import AlertReader
from loadtests.bench.history import History
from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, Rig, Say
from loadtests.faults.job_process import PATIENCE_S

MEANWHILE = 20_000
"""Transactions that arrive while no job runs: some of them are alerts."""
POLL_S = 0.02
LIVE_RATE = 2_000
SETTLE_S = 20.0
"""How long the job that is killed has been at work."""
POLLED_S = 0.5
KINDS = {"working copies at hand": False, "working copies lost": True}
"""The same machine again, and another one that has the checkpoint only."""


def measure(rig: Rig, events: int, rounds: int, say: Say) -> Iterator[Figure]:
    """Build the state up, then kill and start the job again and again.

    Args:
        rig: servers, cards, model.
        events: transactions that the state is made of.
        rounds: restarts of either kind.
        say: is told what is done.

    Raises:
        FraudError: the job ended, or decides nothing.
    """
    say(f"sending {events:,} transactions")
    History(rig.installed, events).send(events)
    rig.start_job()
    rig.catch_up(say)
    for kind, lost in KINDS.items():
        took = []
        for number in range(1, rounds + 1):
            say(f"restart {number} of {rounds}, {kind}")
            took.append(_restarted(rig, lost, say))
        yield Figure(f"start to first alert, {kind}", statistics.median(took), "s", tuple(took))
    gaps = [_killed_live(rig, say) for _ in range(rounds)]
    yield Figure(
        "SIGKILL to next alert", statistics.median(gaps), "s", tuple(gaps),
        f"started again at once; {LIVE_RATE:,} transactions a second go on",
    )  # fmt: skip
    rig.stop_job()


def _killed_live(rig: Rig, say: Say) -> float:
    """Seconds from the SIGKILL of a job under load to the first alert of the next one."""
    installed = rig.installed
    reader = AlertReader(installed.stack.bootstrap_servers, installed.topics.fraud_alerts)
    reader.start()
    with rig.feeding(LIVE_RATE, 2 * PATIENCE_S):
        say(f"{LIVE_RATE:,} transactions a second, then a SIGKILL")
        _wait_for_alert(rig, reader, time.time())
        time.sleep(SETTLE_S)
        begin = time.time()
        rig.kill_job()
        rig.start_job()
        # what the killed job had committed may still be on its way to the reader
        first = _wait_for_alert(rig, reader, begin + POLLED_S)
    reader.stop()
    rig.catch_up(say)
    return first - begin


def _wait_for_alert(rig: Rig, reader: AlertReader, after: float) -> float:
    """When the first alert came that came after a moment; both in seconds since 1970-01-01 UTC."""
    while not reader.received or reader.received[-1] / 1000 < after:
        rig.check()
        if time.time() - after > PATIENCE_S:
            raise BenchError(f"no alert in {PATIENCE_S:.0f} s; see {rig.installed.directory}")
        time.sleep(POLL_S)
    return next(received / 1000 for received in reader.received if received / 1000 >= after)


def _restarted(rig: Rig, lost: bool, say: Say) -> float:
    """Seconds until a read_committed consumer had an alert of a job that was killed and started again."""
    installed = rig.installed
    rig.kill_job()
    if lost:
        shutil.rmtree(installed.settings.work_dir)
    reader = AlertReader(installed.stack.bootstrap_servers, installed.topics.fraud_alerts)
    reader.start()
    installed.send(MEANWHILE)
    begin = time.time()
    rig.start_job()
    first = _wait_for_alert(rig, reader, begin)
    reader.stop()
    rig.catch_up(say)
    return first - begin
