"""The sink alone, on topics of its own, and what a consumer finds there."""

import json
from pathlib import Path
from typing import Any

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.topic_log import TopicLog
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.progress.outcome import Alert, Outcome
from streaming_job.packets import DeadLetter
from streaming_job.progress.record import Batch, OffsetRange
from streaming_job.settings import JobSettings
from streaming_job.transaction.writer import TransactionalSink


class SinkBench:
    """Topics of a test of its own, sinks that write to them, and what a consumer finds there."""

    def __init__(self, stack: Endpoints, topics: Topics, directory: Path, **settings: Any) -> None:
        broker.create(stack.bootstrap_servers, topics)
        self.topics = topics
        self.log = TopicLog(stack.bootstrap_servers)
        self.settings = JobSettings(
            **{
                "job_id": f"sink-{topics.transactions}",
                "bootstrap_servers": stack.bootstrap_servers,
                "topics": topics,
                "mlflow_tracking_uri": "none",
                "checkpoint": "none",
                "work_dir": directory,
                **settings,
            }
        )

    def sink(self) -> TransactionalSink:
        """A new instance of the job, in charge."""
        made = TransactionalSink(self.settings)
        made.take_over()
        return made

    def start(self, last: Batch | None) -> None:
        """What an instance does before it writes, with a checkpoint that knows this batch last."""
        made = TransactionalSink(self.settings)
        made.require_owner(last)
        made.take_over()
        if last is not None:
            made.is_written(last)

    def batch(self, number: int, query: str = "q", end: int | None = None) -> Batch:
        """Batch 0 reads offsets 0 to 9 of both partitions, batch 1 offsets 10 to 19, ..."""
        ends = 10 * (number + 1) if end is None else end
        ranges = tuple(OffsetRange(self.topics.transactions, part, 10 * number, ends) for part in (0, 1))
        return Batch(self.settings.job_id, query, number, 0, ranges)

    def outcome(self, number: int) -> Outcome:
        """Two alerts and a dead letter."""
        made = Outcome()
        made.alerts = [Alert(0, 10 * number + i, b"card", f"alert {number}/{i}".encode()) for i in (0, 1)]
        made.dead_letters = [
            DeadLetter(self.topics.transactions, 1, number, 5, None, b"\xff", Reason.INVALID_UTF8, "why")
        ]
        return made

    def write(self, sink: TransactionalSink, number: int) -> bool:
        return sink.write(self.batch(number), self.outcome(number))

    def assert_written_once(self, *numbers: int) -> None:
        """Exactly these batches are on the topics, whole and once, and the offsets say so."""
        alerts = [record.value for record in self.log.read(self.topics.fraud_alerts)]
        assert sorted(alerts) == sorted(f"alert {n}/{i}".encode() for n in numbers for i in (0, 1))
        assert len(list(self.log.read(self.topics.dead_letters))) == len(numbers)
        progress = [json.loads(record.value or b"") for record in self.log.read(self.topics.job_progress)]
        assert [record["batch_id"] for record in progress] == list(numbers)
        committed = self.log.committed(self.settings.job_id, (self.topics.transactions,))
        end = 10 * (numbers[-1] + 1)
        assert committed == {(self.topics.transactions, part): end for part in (0, 1)}
