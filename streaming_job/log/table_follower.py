"""Follows the tables: every group reads all of them, at least as far as they stand when it decides."""

import time
from collections.abc import Iterator, Mapping

from streaming_job.log.end_offsets import EndOffsets, answered
from streaming_job.log.errors import PATIENCE_S, LogError
from streaming_job.log.follower import LogFollower
from streaming_job.log.records import Offsets, Records

WAIT_S = 0.005


class TableFollower:
    """Reads tables in bounded pieces."""

    def __init__(
        self, client: Mapping[str, str], ends: EndOffsets, positions: Offsets, most: int, most_bytes: int
    ) -> None:
        """Begin to fetch.

        Args:
            client: settings of the Kafka client.
            ends: tells how far the tables reach; of their topics alone.
            positions: where to begin, by partition of every table.
            most: records of a piece.
            most_bytes: keys and values of a piece, to which one record at most is added.

        Raises:
            LogError: the brokers do not answer.
        """
        self._ends, self._most, self._most_bytes = ends, most, most_bytes
        self._first_ends = self.ends()
        # what a table has got since the positions were noted is read from its beginning
        self._log = LogFollower(client, {**dict.fromkeys(self._first_ends, 0), **positions})

    @property
    def positions(self) -> Offsets:
        """By partition: the offset after what has been handed out."""
        return self._log.positions

    def ends(self) -> Offsets:
        """Where the tables end now, open transactions left out.

        Raises:
            LogError: no answer for too long.
        """
        return answered(self._ends.last)

    def lag(self) -> dict[str, int]:
        """By topic: records to be read before anything is decided; empty once the tables are loaded."""
        lags: dict[str, int] = {}
        for place, end in self._first_ends.items():
            if (left := end - self.positions.get(place, 0)) > 0:
                lags[place[0]] = lags.get(place[0], 0) + left
        if not lags:
            self._first_ends = {}
        return lags

    def arrived(self, wait_s: float = 0.0) -> list[Records]:
        """A piece of what has come."""
        return self._log.take(self._most, self._most_bytes, wait_s)

    def up_to_now(self) -> Iterator[Records]:
        """Everything up to where the tables stand now, in pieces.

        Raises:
            LogError: records are gone, do not come, or the brokers do not answer.
        """
        ends = self.ends()
        if new := ends.keys() - self.positions.keys():
            raise LogError(
                f"{_words(dict.fromkeys(new, 0))}: a table has got partitions; the group is opened anew"
            )
        heard, before = time.monotonic(), dict(self.positions)
        while any(self.positions.get(place, 0) < end for place, end in ends.items()):
            yield from self._log.take(self._most, self._most_bytes, WAIT_S)
            if self.positions != before:
                heard, before = time.monotonic(), dict(self.positions)
            elif time.monotonic() - heard > PATIENCE_S:
                raise LogError(
                    f"no more records of the tables come, up to {_words(ends)}: {self._log.trouble()}; check "
                    "the brokers, and whether a topic was made anew or has lost records"
                )

    def close(self) -> None:
        """Stop fetching."""
        self._log.close()
        self._ends.close()


def _words(offsets: Offsets) -> str:
    return ", ".join(
        f"{topic}-{partition}@{offset}" for (topic, partition), offset in sorted(offsets.items())
    )
