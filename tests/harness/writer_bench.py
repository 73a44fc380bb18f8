"""Writers of key groups without the job, on their own topics, and the records that a consumer reads there."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.audit.topic_log import TopicLog
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import WRITTEN, Topics
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.group.settings_in_force import SINCE
from streaming_job.log import clients
from streaming_job.log.clients import Address
from streaming_job.log.records import Arrived, Offsets, PartitionId
from streaming_job.progress.outcome import OutputRecord
from streaming_job.progress.totals import Totals
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.settings import JobSettings
from streaming_job.transaction.writer import GroupWriter, Output
from streaming_job.transaction.written import Mark

OWN = {0: (0, 2), 1: (1, 3)}
"""Partitions of the two key groups."""
At = Callable[[Failpoint, Callable[[], object]], None]
"""Type of the fixture `at`: runs an action when a writer reaches a step."""


class Killed(BaseException):
    """Stands for SIGKILL."""


def die() -> None:
    """Raise Killed."""
    raise Killed


class WriterBench:
    """Topics with four partitions for one test, writers of two key groups, and their output."""

    def __init__(self, stack: Endpoints, topics: Topics, directory: Path, **settings: Any) -> None:
        broker.create(stack.bootstrap_servers, topics, partitions=4)
        self.servers = stack.bootstrap_servers
        self.topics = topics
        self._made: list[GroupWriter] = []
        self.newest: dict[PartitionId, Arrived] = {}
        """The last record read of each partition, as the next progress records report it."""
        self.log = TopicLog(stack.bootstrap_servers)
        self.settings = JobSettings(
            **{
                "job_id": f"writer-{topics.transactions}",
                "bootstrap_servers": stack.bootstrap_servers,
                "topics": topics,
                "mlflow_tracking_uri": "none",
                "checkpoint": "none",
                "work_dir": directory,
                **settings,
            }
        )

    def new(self, instance: str, *, group: int = 0, query: str = "q") -> GroupWriter:
        """A writer that has not taken the group over yet."""
        result = GroupWriter(self.settings, group, OWN[group], query, instance)
        self._made.append(result)
        return result

    def writer(self, instance: str | None = None, *, group: int = 0, query: str = "q") -> GroupWriter:
        """A writer that has taken the group over; by default of a new instance."""
        result = self.new(instance or secrets.token_hex(4), group=group, query=query)
        result.take_over(self.ends(0, group))
        return result

    def close(self) -> None:
        """Close all writers."""
        for writer in self._made:
            writer.close()

    def ends(self, commit_id: int, group: int = 0) -> Offsets:
        """End offsets of a commit: 10 * `commit_id` in each partition of the group, 1000 in the rollouts."""
        own = {(self.topics.transactions, partition): 10 * commit_id for partition in OWN[group]}
        return {**own, (self.topics.model_rollouts, 0): 1000}

    def output(self, commit_id: int, group: int = 0, query: str = "q") -> Output:
        """Two alerts, a dead letter, and the fields of a progress record that its readers use."""
        ends = self.ends(commit_id, group)
        first = OWN[group][0]
        progress = {
            "schema_version": 2,
            "job_id": self.settings.job_id,
            "query_id": query,
            "release": "of the bench",
            "key_group": group,
            "key_groups": len(OWN),
            "settings": {**self.settings.decisive, SINCE: 0},
            **({} if group else {"layout": self.settings.layout(4).to_json()}),
            "commit_id": commit_id,
            "written_at": commit_id,
            "partitions": [
                {"topic": topic, "partition": partition, "start_offset": end - 10, "end_offset": end}
                | ({"newest": self.newest[tp]._asdict()} if (tp := (topic, partition)) in self.newest else {})
                for (topic, partition), end in ends.items()
            ],
            "rollouts_set_aside": {},
            "table_lag": {},
            "state": {"cards": 0, "cards_without_profile": 0, "events": 0, "local_bytes": 0},
            "totals": Totals().to_json(),
        }
        return Output(
            commit_id,
            {
                **dict.fromkeys(WRITTEN, ()),
                "fraud_alerts": [
                    OutputRecord(
                        b"card", f"alert {group}/{commit_id}/{i}".encode(), first, 10 * commit_id + i
                    )
                    for i in (0, 1)
                ],
                "dead_letters": [
                    DeadLetter(
                        self.topics.transactions,
                        first,
                        commit_id,
                        5,
                        None,
                        b"\xff",
                        Reason.INVALID_UTF8,
                        "why",
                    )
                ],
            },
            orjson.dumps(progress, option=orjson.OPT_SERIALIZE_NUMPY),
            ends,
        )

    def write(self, writer: GroupWriter, commit_id: int, group: int = 0) -> None:
        writer.write(self.output(commit_id, group))

    def committed(self, group: int = 0) -> dict[int, int]:
        """Offsets of the group's partitions, as lag tools see them."""
        return self.committed_of(self.topics.transactions, OWN[group])

    def committed_of(self, topic: str, partitions: tuple[int, ...]) -> dict[int, int]:
        """Committed offsets by partition, as `_stable` reads them."""
        result = self._stable(topic, partitions)
        return {read_back.partition: read_back.offset for read_back in result if read_back.offset >= 0}

    def marks(self, group: int = 0) -> list[Mark | None]:
        """The metadata of the committed offsets of the group's partitions."""
        result = self._stable(self.topics.transactions, OWN[group])
        return [Mark.from_metadata(read_back.metadata) for read_back in result]

    def _stable(self, topic: str, partitions: tuple[int, ...]) -> list[TopicPartition]:
        """Committed offsets; waits for the latest commit, which readers see with a delay."""
        # the consumer asks for stable offsets: the broker answers once no transaction on them is open
        consumer = clients.reader(Address(self.servers), self.settings.job_id)
        try:
            result: list[TopicPartition] = consumer.committed(
                [TopicPartition(topic, part) for part in partitions], 30.0
            )
        finally:
            consumer.close()
        return result

    def commit_as_a_tool(self, offset: int, *partitions: int) -> None:
        """Set the committed offset of partitions, by default of group 0's, as kafka-consumer-groups does."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.settings.job_id})
        moved = [TopicPartition(self.topics.transactions, part, offset) for part in partitions or OWN[0]]
        consumer.commit(offsets=moved, asynchronous=False)
        consumer.close()

    def delete_group(self) -> None:
        """Delete the consumer group, as kafka-consumer-groups --delete does."""
        client = broker.admin(self.servers)
        for answer in client.delete_consumer_groups([self.settings.job_id]).values():
            answer.result()

    def empty_progress(self) -> None:
        """Delete the progress records, as kafka-delete-records does."""
        topic = self.topics.job_progress
        partitions = [TopicPartition(topic, partition, -1) for partition in self.log.ends(topic)]
        client = broker.admin(self.servers)
        for answer in client.delete_records(partitions).values():
            answer.result()

    def assert_written_once(self, *commits: int, group: int = 0) -> None:
        """Check that the topics hold just these commits of the group, each once, and that offsets agree."""
        self._wait_for_markers()
        alerts = [
            record.value for record in self.log.read(self.topics.fraud_alerts) if _group(record) == group
        ]
        assert sorted(alerts) == sorted(f"alert {group}/{n}/{i}".encode() for n in commits for i in (0, 1))
        letters = [record for record in self.log.read(self.topics.dead_letters) if _group(record) == group]
        assert sorted(int(dict(record.headers)["commit_id"]) for record in letters) == list(commits)
        assert [record["commit_id"] for record in self.progress(group)] == list(commits)
        assert self.committed(group) == dict.fromkeys(OWN[group], 10 * commits[-1])

    def _wait_for_markers(self) -> None:
        """Wait, for 2 s at most, until no transaction is open: readers may see a commit after its answer."""
        partitions = [
            TopicPartition(topic, part)
            for topic in (self.topics.fraud_alerts, self.topics.dead_letters, self.topics.job_progress)
            for part in self.log.ends(topic)
        ]
        consumers = [
            Consumer({"bootstrap.servers": self.servers, "group.id": "ends", "isolation.level": level})
            for level in ("read_committed", "read_uncommitted")
        ]
        deadline = time.monotonic() + 2.0
        ends: list[list[int]] = []
        while (not ends or ends[0] != ends[1]) and time.monotonic() < deadline:
            ends = [
                [consumer.get_watermark_offsets(part, 10.0)[1] for part in partitions]
                for consumer in consumers
            ]
        for consumer in consumers:
            consumer.close()

    def progress(self, group: int = 0) -> list[dict[str, Any]]:
        records = [orjson.loads(record.value or b"") for record in self.log.read(self.topics.job_progress)]
        return [record for record in records if record["key_group"] == group]


def _group(record: Any) -> int:
    return int(dict(record.headers)["key_group"])
