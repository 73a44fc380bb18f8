"""A writer of the job's output that the sidecar reads: progress and input offsets, in one transaction."""

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from harness.progress_records import progress
from service.settings import ServiceSettings
from streaming_job.transaction.written import Mark


class Job:
    """A writer of the output of a job that does not run."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        servers = {"bootstrap.servers": settings.bootstrap_servers}
        self.group = Consumer({**servers, "group.id": settings.job_id, "enable.auto.commit": False})
        self.producer = Producer({**servers, "transactional.id": settings.job_id})
        self.producer.init_transactions(30)

    def write(
        self,
        commit_id: int,
        end: int | None = None,
        *,
        commit: bool = True,
        owner: str = "",
        key_group: int = 0,
        trials: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        """Write one commit.

        Args:
            end: committed offset of the group's partition of the transactions; None: none is committed.
            commit: False: the transaction is aborted.
            owner: owner in the metadata of the offset; empty: the offset has no metadata.
            key_group: key group, and number of its partition.
            trials: `trials` of the record's totals.
            changes: changed fields of the record.
        """
        record = progress(commit_id, key_group, **{"job_id": self.settings.job_id, **changes})
        if trials is not None:
            record["totals"]["trials"] = trials
        self.producer.begin_transaction()
        self.producer.produce(
            self.settings.topics.job_progress, json.dumps(record).encode(), key=record["job_id"]
        )
        if end is not None:
            mark = Mark("q1", owner, commit_id).to_metadata() if owner else ""
            offsets = [TopicPartition(self.settings.topics.transactions, key_group, end, mark)]
            self.producer.send_offsets_to_transaction(offsets, self.group.consumer_group_metadata(), 30)
        if commit:
            self.producer.commit_transaction(30)
        else:
            self.producer.flush(30)  # otherwise the record is not sent at all
            self.producer.abort_transaction(30)

    def feed(self, count: int, partition: int = 0) -> None:
        """Append input records, which wait for the job."""
        feeder = Producer({"bootstrap.servers": self.settings.bootstrap_servers})
        for _ in range(count):
            feeder.produce(self.settings.topics.transactions, b"{}", partition=partition)
        assert feeder.flush(30) == 0
