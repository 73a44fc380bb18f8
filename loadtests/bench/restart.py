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
    rig.stop_job()


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
    while not reader.received:
        rig.check()
        if time.time() - begin > PATIENCE_S:
            raise BenchError(f"no alert {PATIENCE_S:.0f} s after the start; see {installed.directory}")
        time.sleep(POLL_S)
    reader.stop()
    rig.catch_up(say)
    return reader.received[0] / 1000 - begin
