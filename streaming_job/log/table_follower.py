"""The follower of the tables. Before a group decides, it reads profiles and rollouts to their ends.

If the job keeps merchant facts, the topics of facts, labels and chargebacks are followed as tables, too.

The end of a table is its last stable offset; for the topics in `awaited`, it is the high watermark. A record
of such a topic takes effect at its own timestamp, a few milliseconds before its Kafka transaction is
committed, and card transactions that arrive in between must be decided with it. If the Kafka transaction
stays open for OPEN_S, it is passed over, with a warning.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaException

from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.errors import PATIENCE_S, LogUnavailableError
from streaming_job.log.follower import LogFollower, PartitionFollower
from streaming_job.log.records import Offsets, Records, text_of
from streaming_job.log.watermarks import Watermarks
from streaming_job.runtime import pauses

log = logging.getLogger(__name__)
WAIT_S = 0.005
OPEN_S = 5.0
"""Longest time for which decisions wait for the end of a Kafka transaction on an awaited topic. A writer that
dies leaves its transaction open for half a minute, and none of its records takes effect."""


class TableFollower:
    """A follower of all tables, which returns their records in bounded batches."""

    def __init__(
        self,
        client: Mapping[str, str],
        topics: Collection[str],
        awaited: Collection[str],
        positions: Offsets,
        most: int,
        most_bytes: int,
        follow: Callable[[Offsets], PartitionFollower] | None = None,
        own: Collection[str] = (),
    ) -> None:
        """Begin to fetch.

        Args:
            awaited: the topics whose open Kafka transactions are waited for.
            positions: where to begin, by partition; partitions that it lacks are read from offset 0.
            most_bytes: limit of bytes of keys and values of a batch; see `LogFollower.take`.
            follow: begins to follow partitions from some positions on; default: in Kafka.
            own: the topics that the group itself writes to. The group must know all that it has committed
                before it decides, and an open transaction of another group may hide that: so what `lag`
                counts on these topics ends at the high watermark.
        """
        self._ends = EndOffsets(client, tuple(topics))
        self._watermarks = Watermarks(client, topics)
        self._awaited, self._most, self._most_bytes = frozenset(awaited), most, most_bytes
        self._passed_over: Offsets = {}
        """Last stable offset of each partition whose open Kafka transaction is no longer waited for."""
        self._first_ends = self.ends()
        if own:
            self._first_ends |= with_retries(partial(self._watermarks.last, own))
        # partitions that were added since the positions were stored are read from their beginning
        begun = {**dict.fromkeys(self._first_ends, 0), **positions}
        self._log = LogFollower(client, begun) if follow is None else follow(begun)

    @property
    def positions(self) -> Offsets:
        """Next offset of each partition: after the records, transaction markers and aborted records read."""
        return self._log.positions

    def ends(self, topics: Collection[str] | None = None) -> Offsets:
        """Return the last stable offset of each partition of some tables, by default all of them."""
        return with_retries(partial(self._ends.last, topics))

    def lag(self) -> dict[str, int]:
        """Return by topic the number of records that existed at the opening and are not read yet.

        Empty once all of them are read: only then does the group decide.
        """
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

    def look(self, topics: Collection[str]) -> None:
        """Begin to look up the ends of tables, for the next `read_to_ends` of them."""
        with suppress(KafkaException):  # then they are asked for again
            self._watermarks.ask(topics)

    def read_to_ends(self, topics: Collection[str]) -> Iterator[Records]:
        """Yield records, in batches: all of `topics` up to their current ends, and new ones of other tables.

        If a table is written in Kafka transactions, as merchant facts are, reading takes up to 50 ms longer
        after each transaction: only the next fetch, which finds nothing, shows that its marker is passed.

        Args:
            topics: the tables to read to their ends.

        Raises:
            LogUnavailableError: records do not arrive, a table has new partitions, or the brokers do not
                answer.
        """
        yield from self.poll()
        ends = self._current_ends(topics)
        if new := ends.keys() - self.positions.keys():
            raise LogUnavailableError(
                f"{text_of(dict.fromkeys(new, 0))}: a table has new partitions; the group is opened again"
            )
        last_read, before = time.monotonic(), self.positions
        while missing := {tp: end for tp, end in ends.items() if self.positions[tp] < end}:
            yield from self._log.take(self._most, self._most_bytes, WAIT_S)
            positions = self.positions
            # new records of partitions that are read to their ends already do not count
            if any(positions[tp] != before[tp] for tp in missing):
                last_read, before = time.monotonic(), positions
                continue
            pauses.look()
            if time.monotonic() - last_read > OPEN_S and self._are_open(missing):
                return
            if time.monotonic() - last_read > PATIENCE_S:
                raise LogUnavailableError(
                    f"records of the tables up to {text_of(ends)} do not arrive: {self._log.trouble()}; "
                    "check the brokers, and whether a topic was recreated or has lost records"
                )

    def _current_ends(self, topics: Collection[str]) -> Offsets:
        """Return the offsets up to which tables are to be read."""
        watermarks = with_retries(partial(self._watermarks.last, topics))
        positions = self.positions
        if all(positions.get(tp, -1) >= end for tp, end in watermarks.items()):
            return watermarks  # nothing is new, as in most calls: one request is enough
        ends = self.ends(topics)
        for tp, watermark in watermarks.items():
            if tp[0] in self._awaited and self._passed_over.get(tp) != ends.get(tp):
                ends[tp] = max(watermark, ends.get(tp, 0))
        return ends

    def _are_open(self, missing: Offsets) -> bool:
        """Return whether only open Kafka transactions precede the ends `missing`; if so, pass them over."""
        if any(topic not in self._awaited for topic, _ in missing):
            return False
        ends = self.ends()
        if any(self.positions[tp] < ends[tp] for tp in missing):
            return False
        log.warning(
            "a producer's transaction on %s has been open for %.0f s and is no longer waited for; if it is "
            "committed later, a replay decides otherwise",
            text_of(missing),
            OPEN_S,
        )
        self._passed_over |= {tp: ends[tp] for tp in missing}
        return True

    def close(self) -> None:
        """Stop fetching."""
        self._log.close()
        self._ends.close()
        self._watermarks.close()
