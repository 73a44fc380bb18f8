"""The source stage's Python side: an Arrow batch of records in, one packet per key group out."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_job.contracts.topics import Topics
from streaming_job.crash_points import Step, reach
from streaming_job.decode import transactions
from streaming_job.decode.strict import Rejected
from streaming_job.decode.tables import ends_snapshot, profile_change
from streaming_job.decode.transactions import TimeLimits
from streaming_job.packets import DeadLetter, Packet, RolloutRecord, group_of, grouping_values
from streaming_job.warm_up import freeze_after_warm_up

PACKET_SCHEMA = pa.schema([("key_group", pa.int32()), ("packet", pa.binary())])


class SourceStage:
    """Decodes batches of one task; picklable, so that Spark can ship it."""

    def __init__(self, topics: Topics, groups: int, limits: TimeLimits) -> None:
        self._topics = topics
        self._groups = groups
        self._limits = limits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packets of all batches; rows have the columns that `source` selects."""
        values = grouping_values(self._groups)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            packets = self._decode(batch)
            reach(Step.DECODED)
            groups = sorted(packets)
            yield pa.record_batch(
                [
                    pa.array([values[group] for group in groups], type=pa.int32()),
                    pa.array([packets[group].pack() for group in groups], type=pa.binary()),
                ],
                schema=PACKET_SCHEMA,
            )
        freeze_after_warm_up()

    def _decode(self, batch: pa.RecordBatch) -> dict[int, Packet]:
        topic = batch["topic"]
        # the transaction source leaves the topic out: one string less per record
        if topic.null_count == len(topic):
            return self._transactions(batch)
        return self._tables(batch)

    def _transactions(self, batch: pa.RecordBatch) -> dict[int, Packet]:
        partitions = batch["partition"].to_numpy()
        offsets = batch["offset"].to_numpy()
        arrivals = _milliseconds(batch["timestamp"])
        values = batch["value"]
        decoded = transactions.decode(values, partitions, offsets, arrivals, self._limits)
        packets: dict[int, Packet] = {}
        groups = group_of(decoded.records["hi"], self._groups)
        for group in range(self._groups):
            chosen = np.flatnonzero(groups == group)
            if chosen.size:
                packets[group] = Packet(
                    transactions=decoded.records[chosen], quotes=decoded.quotes.take(pa.array(chosen))
                )
        for rejection in decoded.rejections:
            row = rejection.row
            letter = DeadLetter(
                self._topics.transactions,
                int(partitions[row]),
                int(offsets[row]),
                int(arrivals[row]),
                batch["key"][row].as_py(),
                values[row].as_py(),
                rejection.reason,
                rejection.detail,
            )
            self._add_dead_letter(packets, letter)
        return packets

    def _tables(self, batch: pa.RecordBatch) -> dict[int, Packet]:
        packets: dict[int, Packet] = {}
        changes: list[NDArray[np.void]] = []
        arrivals = _milliseconds(batch["timestamp"]).tolist()
        columns = (batch[name].to_pylist() for name in ("topic", "partition", "offset", "key", "value"))
        for arrival, topic, partition, offset, key, value in zip(arrivals, *columns, strict=True):
            try:
                if topic == self._topics.profiles:
                    changes.append(profile_change(key, value, partition, offset, arrival))
                    if ends_snapshot(value):  # every group has to know
                        for group in range(self._groups):
                            packet = packets.setdefault(group, Packet())
                            packet.snapshot_end = min(arrival, packet.snapshot_end or arrival)
                else:
                    for group in range(self._groups):
                        packet = packets.setdefault(group, Packet())
                        packet.rollouts.append(RolloutRecord(arrival, offset, value, key))
            except Rejected as fault:
                letter = DeadLetter(topic, partition, offset, arrival, key, value, fault.reason, fault.detail)
                self._add_dead_letter(packets, letter)
        if changes:
            together = np.concatenate(changes)
            groups = group_of(together["hi"], self._groups)
            for group in np.unique(groups).tolist():
                packets.setdefault(group, Packet()).changes = together[groups == group]
        return packets

    def _add_dead_letter(self, packets: dict[int, Packet], letter: DeadLetter) -> None:
        packets.setdefault(letter.partition % self._groups, Packet()).dead_letters.append(letter)


def _milliseconds(timestamps: pa.TimestampArray) -> NDArray[np.int64]:
    """Spark's microsecond timestamps as ms, shape (n,)."""
    return np.asarray(timestamps.cast(pa.int64()).to_numpy() // 1000)
