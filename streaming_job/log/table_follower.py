"""The follower of the tables, which every group reads at least up to their ends before it decides."""

import time
from collections.abc import Iterator, Mapping

from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.errors import PATIENCE_S, LogError
from streaming_job.log.follower import LogFollower
from streaming_job.log.records import Offsets, Records

WAIT_S = 0.005


class TableFollower:
    """A follower of all tables, which returns their records in bounded batches."""

    def __init__(
        self, client: Mapping[str, str], ends: EndOffsets, positions: Offsets, most: int, most_bytes: int
    ) -> None:
        """Begin to fetch.

        Args:
            client: settings of the Kafka client.
            ends: end offsets of the tables' topics, and of no others.
            positions: where to begin, by partition of every table.
            most: maximum records of a batch.
            most_bytes: limit of keys and values of a batch, which the last record may exceed.

        Raises:
            LogError: the brokers do not answer.
        """
        self._ends, self._most, self._most_bytes = ends, most, most_bytes
        self._first_ends = self.ends()
        # partitions that were added since the positions were stored are read from their beginning
        self._log = LogFollower(client, {**dict.fromkeys(self._first_ends, 0), **positions})

    @property
    def positions(self) -> Offsets:
        """Offset after the last record returned, by partition."""
        return self._log.positions

    def ends(self) -> Offsets:
        """Return the last stable offset of each partition of the tables.

        Raises:
            LogError: the brokers did not answer for PATIENCE_S.
        """
        return with_retries(self._ends.last)

    def lag(self) -> dict[str, int]:
        """Return by topic the records to be read before deciding; empty once the tables are loaded."""
        lags: dict[str, int] = {}
        for tp, end in self._first_ends.items():
            if (remaining := end - self.positions.get(tp, 0)) > 0:
                lags[tp[0]] = lags.get(tp[0], 0) + remaining
        if not lags:
            self._first_ends = {}
        return lags

    def poll(self, wait_s: float = 0.0) -> list[Records]:
        """Return a batch of new records."""
        return self._log.take(self._most, self._most_bytes, wait_s)

    def read_to_ends(self) -> Iterator[Records]:
        """Yield all records up to the tables' current ends, in batches.

        Raises:
            LogError: records are gone or do not arrive, or the brokers do not answer.
        """
        ends = self.ends()
        if new := ends.keys() - self.positions.keys():
            raise LogError(
                f"{_describe(dict.fromkeys(new, 0))}: a table has new partitions; the group is opened again"
            )
        last_read, positions = time.monotonic(), dict(self.positions)
        while any(self.positions.get(tp, 0) < end for tp, end in ends.items()):
            yield from self._log.take(self._most, self._most_bytes, WAIT_S)
            if self.positions != positions:
                last_read, positions = time.monotonic(), dict(self.positions)
            elif time.monotonic() - last_read > PATIENCE_S:
                raise LogError(
                    f"no more records of the tables arrive, up to {_describe(ends)}: {self._log.trouble()}; "
                    "check the brokers, and whether a topic was recreated or has lost records"
                )

    def close(self) -> None:
        """Stop fetching."""
        self._log.close()
        self._ends.close()


def _describe(offsets: Offsets) -> str:
    return ", ".join(
        f"{topic}-{partition}@{offset}" for (topic, partition), offset in sorted(offsets.items())
    )
