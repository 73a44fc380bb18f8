"""What a slice of a topic becomes: records in, one packet per key group out."""

from collections.abc import Iterator
from dataclasses import replace

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
from streaming_job.source.records import Records
from streaming_job.workers.warm_up import freeze_after_warm_up

MOST_WHOLE = 1 << 20
"""Bytes of dead letters that a task hands on; what is more stays in the log until they are written."""
PACKET_SCHEMA = pa.schema([("key_group", pa.int32()), ("packet", pa.binary())])


class SourceStage:
    """Decodes the records of one task."""

    def __init__(self, topics: Topics, groups: int, limits: TimeLimits) -> None:
        self._topics = topics
        self._groups = groups
        self._limits = limits
        self._whole = 0
        """Bytes of dead letters so far."""

    def __call__(self, slices: Iterator[Records]) -> Iterator[pa.RecordBatch]:
        """Packets of all records, one row (PACKET_SCHEMA) for each key group that some belong to."""
        values = grouping_values(self._groups)
        for records in slices:
            packets = self.decode(records)
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

    def decode(self, records: Records) -> dict[int, Packet]:
        """Packets by key group."""
        if records.topic == self._topics.transactions:
            return self._transactions(records)
        return self._tables(records)

    def _transactions(self, records: Records) -> dict[int, Packet]:
        decoded = transactions.decode(
            records.values, records.partition, records.offsets, records.arrivals, self._limits
        )
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
                records.topic,
                records.partition,
                int(records.offsets[row]),
                int(records.arrivals[row]),
                records.keys[row].as_py(),
                records.values[row].as_py(),
                rejection.reason,
                rejection.detail,
            )
            self._add_dead_letter(packets, letter)
        return packets

    def _tables(self, records: Records) -> dict[int, Packet]:
        packets: dict[int, Packet] = {}
        changes: list[NDArray[np.void]] = []
        topic, partition = records.topic, records.partition
        times, offsets = records.arrivals.tolist(), records.offsets.tolist()
        keys, values = records.keys.to_pylist(), records.values.to_pylist()
        for arrival, offset, key, value in zip(times, offsets, keys, values, strict=True):
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
        self._whole += len(letter.key or b"") + len(letter.value or b"")
        if self._whole > MOST_WHOLE:
            letter = replace(letter, key=None, value=None, is_whole=False)
        packets.setdefault(letter.partition % self._groups, Packet()).dead_letters.append(letter)
