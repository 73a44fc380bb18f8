"""Says what has come of a group's records: the progress record made, one Kafka transaction written."""

import time
from collections.abc import Callable
from typing import Any

from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.writer import GroupProgress
from streaming_job.transaction.writer import GroupWriter, Output

COMMIT_ID = "commit_id"
"""Name in `Meta.extra`: the number of the group's last Kafka transaction."""
LAST = "progress"
"""Name in `Meta.extra`: the progress record of that transaction, JSON."""


class GroupVoice:
    """A group's writer and its progress."""

    def __init__(
        self,
        writer: GroupWriter,
        progress: GroupProgress,
        transactions_topic: str,
        said: Offsets,
        rebuilds: int,
        notes: dict[str, Any],
    ) -> None:
        """Go on after what has been said.

        Args:
            writer: has taken the group over.
            progress: goes on from the group's last record.
            transactions_topic: name.
            said: Q of all inputs: where the next record begins.
            rebuilds: how often the working copy had to be rebuilt to get here, for the next record.
            notes: what the state keeps beside the cards: of the last transaction COMMIT_ID and LAST.
        """
        self._writer, self._progress, self._topic = writer, progress, transactions_topic
        self._starts = said
        self._rebuilds = rebuilds
        self._notes = notes
        self._begun_ms = _now_ms()
        self._took_ms = 0.0
        self._epoch = 0
        self.said: dict[str, int] = {}
        """Of the running epoch: commits, transactions, alerts, dead_letters."""

    def begin(self, epoch: int) -> None:
        """Begin an epoch: its number stands in progress records."""
        self._epoch = epoch
        self.said = dict.fromkeys(("commits", "transactions", "alerts", "dead_letters"), 0)

    def say(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        """Write one Kafka transaction.

        Raises:
            FencedError: another instance of the job has taken over.
            SinkError: the brokers do not take it.
        """
        outcome = take_outcome()
        for alerts in (outcome.alerts, outcome.suppressed, outcome.shadow_alerts):
            alerts.sort(key=lambda alert: (alert.partition, alert.offset))
        outcome.counts["rebuilds"], self._rebuilds = self._rebuilds, 0
        if self._took_ms:  # of the one before: this one's own is not known yet
            outcome.phases["transaction"] += self._took_ms  # type: ignore[assignment]
        now = _now_ms()
        progress = self._progress.record(
            outcome,
            epoch=self._epoch,
            started_at=self._begun_ms,
            now=now,
            starts=self._starts,
            ends=ends,
            transactions_topic=self._topic,
            table_lag=table_lag,
        )
        begun = time.perf_counter()
        self._writer.write(
            Output(
                self._progress.commit_id,
                outcome.alerts,
                outcome.dead_letters,
                progress,
                ends,
                outcome.suppressed,
                outcome.shadow_alerts,
                outcome.facts,
            )
        )
        self._took_ms = 1000 * (time.perf_counter() - begun)
        self._notes |= {COMMIT_ID: self._progress.commit_id, LAST: progress.decode()}
        self._starts, self._begun_ms = ends, now
        self.said["commits"] += 1
        self.said["transactions"] += outcome.counts["transactions"]
        self.said["alerts"] += len(outcome.alerts)
        self.said["dead_letters"] += len(outcome.dead_letters)

    def close(self) -> None:
        """Let the producer go."""
        self._writer.close()


def _now_ms() -> int:
    return int(time.time() * 1000)
