"""The output of a key group: writes each outcome and its progress record in one Kafka transaction."""

import time
from collections.abc import Callable
from typing import Any

from streaming_job.contracts.topics import DIGESTED
from streaming_job.log.records import Offsets
from streaming_job.progress.last_record import COMMIT_ID, LAST
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.writer import GroupProgress
from streaming_job.transaction.writer import GroupWriter, Output


class GroupCommitter:
    """The output of a key group: its transactional writer, and its progress."""

    def __init__(
        self,
        writer: GroupWriter,
        progress: GroupProgress,
        transactions_topic: str,
        starts: Offsets,
        rebuilds: int,
        notes: dict[str, Any],
    ) -> None:
        """Continue after the group's last commit.

        Args:
            writer: writer that has taken the group over.
            progress: progress that continues from the group's last record.
            starts: Q of all inputs, where the next progress record begins.
            rebuilds: number of rebuilds of the working copy at this opening, for the next progress record.
            notes: `Meta.extra` of the state; each transaction sets COMMIT_ID and LAST in it.
        """
        self._writer, self._progress, self._topic = writer, progress, transactions_topic
        self._starts = starts
        self._rebuilds = rebuilds
        self._notes = notes
        self._begun_ms = _now_ms()
        self.epoch = 0
        """Number of the running epoch, for progress records."""
        self.summary: dict[str, int] = {}
        """Counts since the last cut: commits, transactions, alerts, dead_letters."""

    def begin(self) -> None:
        """Begin to count anew."""
        self.summary = dict.fromkeys(("commits", "transactions", "alerts", "dead_letters"), 0)

    def commit(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        """Write one Kafka transaction.

        Raises:
            FencedError: another instance of the job has taken over.
            SinkError: the transaction failed in several attempts; or a newer task attempt of this instance
                has the group; or the brokers do not answer, or another transaction stays open.
        """
        outcome = take_outcome()
        for topic in DIGESTED:
            outcome.records[topic].sort(key=lambda record: (record.partition, record.offset))
        outcome.counts["rebuilds"], self._rebuilds = self._rebuilds, 0
        now = _now_ms()
        progress = self._progress.record(
            outcome,
            epoch=self.epoch,
            started_at=self._begun_ms,
            now=now,
            starts=self._starts,
            ends=ends,
            transactions_topic=self._topic,
            table_lag=table_lag,
        )
        self._writer.write(Output(self._progress.commit_id, outcome.records, progress, ends))
        self._notes |= {COMMIT_ID: self._progress.commit_id, LAST: progress.decode()}
        self._starts, self._begun_ms = ends, now
        self.summary["commits"] += 1
        self.summary["transactions"] += outcome.counts["transactions"]
        self.summary["alerts"] += len(outcome.records["fraud_alerts"])
        self.summary["dead_letters"] += len(outcome.dead_letters)

    def close(self) -> None:
        """Close the producer."""
        self._writer.close()


def _now_ms() -> int:
    return int(time.time() * 1000)
