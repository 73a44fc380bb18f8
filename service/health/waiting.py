"""Since when records have been on the log, where their own timestamps do not say.

With LogAppendTime the broker stamps a record when it comes. With CreateTime the stamp is the producer's: in
a replay of an archive it is years old, and tells nothing about who waits for what. So the time is that at
which the partition's end was first seen behind the record; of what was there before the first look, of that.
"""

from dataclasses import dataclass, field

Place = tuple[str, int]
"""(topic, partition)."""
MOST = 5_000
"""Looks kept for a partition: at one every two seconds nearly three hours of growth."""


@dataclass
class Waiting:
    """Where partitions ended when."""

    _ends: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)
    """By place: (end offset, ms when it was first seen), both ascending."""

    def see(self, place: Place, position: int, end: int, now_s: float) -> None:
        """Take in a look.

        Args:
            place: the partition.
            position: offset that is processed next; what lies before it waits no more.
            end: offset that the next record will get.
            now_s: seconds since 1970-01-01 UTC.
        """
        ends = self._ends.setdefault(place, [])
        if not ends or end > ends[-1][0]:
            ends.append((end, int(now_s * 1000)))
        while len(ends) > 1 and ends[0][0] <= position:
            del ends[0]
        if len(ends) > MOST:
            del ends[1::2]  # of the growth in between, half of the looks will do

    def since_ms(self, place: Place, offset: int) -> int:
        """When the record at an offset was first seen to be there."""
        ends = self._ends[place]
        return next((seen for end, seen in ends if end > offset), ends[-1][1])
