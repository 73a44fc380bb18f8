"""Three brokers under a job: which of them leads, which replicas are in sync; one is away for a while."""

import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from deploy.local import stack, topics
from deploy.local.stack import Endpoints
from deploy.local.state import BROKERS, Service
from deploy.local.waiting import Patience
from harness.under_load import POLL_S, UnderLoad
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import PATIENCE_S
from streaming_job.contracts.topics import Topics


@dataclass(kw_only=True)
class Trio(UnderLoad):
    """A job on three brokers, under load."""

    directory: Path
    """Of the stack."""
    endpoints: Endpoints

    @staticmethod
    def up(directory: Path) -> "Trio":
        """Start the brokers, and make a model the champion; no job runs yet."""
        endpoints = stack.up(directory, services=["kafka"], brokers=3)
        installed = Installation(endpoints, Topics(), directory / "job")
        installed.roll_out()
        return Trio(installed=installed, directory=directory, endpoints=endpoints)

    def leader(self, topic: str, partition: int = 0) -> Service:
        """The broker that leads a partition."""
        return BROKERS[self._partitions(topic)[partition].leader - 1]

    def controller(self) -> Service:
        """The active controller, as a broker's file says that voted for it."""
        votes = [
            json.loads(file.read_text())
            for file in self.directory.glob("kafka*/data/__cluster_metadata-0/quorum-state")
        ]
        newest = max(votes, key=lambda vote: int(vote["leaderEpoch"]))
        return BROKERS[int(newest["leaderId"]) - 1]

    def in_sync(self) -> int:
        """The least number of in-sync replicas of any partition of the job's topics."""
        names = [name for name, _ in self.installed.topics.rows()]
        return min(len(each.isrs) for name in names for each in self._partitions(name).values())

    def _partitions(self, topic: str):  # type: ignore[no-untyped-def]  # librdkafka's metadata
        return (
            topics.admin(self.endpoints.bootstrap_servers)
            .list_topics(topic, timeout=30)
            .topics[topic]
            .partitions
        )

    def until_in_sync(self, least: int, most: int = 3) -> None:
        """Wait until each partition has so many in-sync replicas."""
        patience = Patience(PATIENCE_S, POLL_S)
        while not least <= self.in_sync() <= most:
            patience.wait(lambda: AssertionError(f"{self.in_sync()} replicas are in sync"))

    def kill(self, broker: Service) -> None:
        """Kill a broker with SIGKILL."""
        assert stack.kill(self.directory, broker, signal.SIGKILL)

    def restore(self) -> None:
        """Start the brokers that do not run, and wait until all replicas are in sync again."""
        stack.up(self.directory, services=["kafka"])
        self.until_in_sync(3)

    def lose_disk(self, broker: Service) -> None:
        """Kill a broker and delete its data."""
        self.kill(broker)
        shutil.rmtree(self.directory / broker)
