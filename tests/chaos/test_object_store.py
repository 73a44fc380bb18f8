"""Checkpoint and models of a job are in an object store, behind a network that is late and fails.

All tests follow one another on one installation, as a job is changed in its life; each audit covers
everything since the beginning.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness import object_store
from harness.object_store import FAILURES, SLOW_S, Fault, ObjectStore
from harness.tools import needs
from harness.under_load import POLL_S, UnderLoad
from thoroughness import only_thorough

from deploy.local import stack
from deploy.local.waiting import Patience
from loadtests.faults.installation import Installation, trained
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from models import tracking
from streaming_job.contracts.topics import Topics

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.without_stack,
    pytest.mark.timeout(900),
    needs("moto_server"),
    only_thorough,
]

RATE = 150
"""Transactions per second: enough for several alerts a second, few enough for an audit of seconds."""
EPOCH_S = 2.0
HASTY = {
    # old epochs are removed from the beginning on
    "spark.sql.streaming.minBatchesToRetain": "5",
}


class Bank(UnderLoad):
    """A job whose checkpoint and models are in a store."""

    def __init__(self, installed: Installation, store: ObjectStore) -> None:
        """Take an installation whose job is not running yet."""
        super().__init__(installed)
        self.store = store
        self.changes: dict[str, object] = {"epoch_s": EPOCH_S}
        """Settings of the job that differ from the installation's."""

    @property
    def running(self) -> JobProcess:
        """The last job that was started."""
        assert self.job is not None
        return self.job

    def start(self, **changes: object) -> JobProcess:
        """Start the job; what runs goes on."""
        self.changes |= changes
        self.job = self.installed.start(**self.changes)
        return self.job

    def restart(self) -> JobProcess:
        """Kill the job, and start it again."""
        self.running.kill()
        return self.start()

    def epochs(self, count: int) -> None:
        """Wait until the running job has ended some further epochs."""
        job = self.running
        end, patience = job.epochs() + count, Patience(PATIENCE_S, POLL_S)
        while (ended := job.epochs()) < end:
            assert job.runs, job.log[-3000:]
            patience.wait(lambda: AssertionError(f"no epochs: {job.log[-3000:]}"), ended)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Print how many requests and bytes an epoch takes while the context lasts."""
        store, job = self.store, self.running
        begin, methods = (job.epochs(), store.sent, store.received), store.methods.copy()
        yield
        epochs = job.epochs() - begin[0]
        each = {name: round(count / epochs, 1) for name, count in (store.methods - methods).items()}
        sent, received = (store.sent - begin[1]) / epochs, (store.received - begin[2]) / epochs
        print(
            f"an epoch: {each}, {sent:.0f} bytes sent, {received:.0f} received, {epochs} epochs",
            file=sys.stderr,
        )


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    directory = tmp_path_factory.mktemp("object-store")
    uri = f"sqlite:///{directory}/mlflow.db"
    try:
        with object_store.running() as store:
            store.calm()
            endpoints = stack.up(directory, services=["kafka"])
            with tracking.registry(uri, creates=True) as client:
                client.create_experiment(tracking.EXPERIMENT, artifact_location="s3://bucket/models")
            installed = Installation(
                endpoints,
                Topics(),
                directory / "job",
                mlflow_tracking_uri=uri,
                checkpoint="s3a://bucket/checkpoint",
                spark={**store.spark(), **HASTY},
            )
            installed.roll_out(model=trained(uri).ref)
            assert store.objects("models/")
            bank = Bank(installed, store)
            try:
                installed.send(1_000)
                installed.caught_up(bank.start())
                yield bank
            finally:
                bank.running.kill()
    finally:
        stack.down(directory)


def test_a_killed_job_goes_on_from_an_object_store(bank: Bank) -> None:
    with bank.load(RATE) as watch:
        with bank.counted():
            bank.epochs(33)  # with one run of Spark's maintenance, each minute
        bank.restart()
        bank.until_alerts(watch)
    bank.audit()


def test_no_alert_waits_for_a_store_that_is_slow_and_fails(bank: Bank) -> None:
    bank.store.fail((*FAILURES, Fault.SLOW))
    with bank.load(RATE):
        bank.epochs(8)
    assert bank.gap_s < SLOW_S
    assert min(bank.store.faults[fault] for fault in (*FAILURES, Fault.SLOW)) > 2, bank.store.faults
    bank.audit()
