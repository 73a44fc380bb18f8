"""The follower of tables, with brokers whose answers are given."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming_job.log import table_follower
from streaming_job.log.errors import LogUnavailableError
from streaming_job.log.records import Offsets, Records
from streaming_job.log.table_follower import TableFollower

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]

EVENTS, PROFILES = ("events", 0), ("profiles", 0)
DEADLINE_S = 5.0


class Brokers:
    """Brokers with a last stable offset and a high watermark for each partition."""

    def __init__(self, stable: Offsets, watermarks: Offsets) -> None:
        self.stable, self.watermarks = dict(stable), dict(watermarks)
        self.positions = dict.fromkeys(stable, 0)
        self.on_take: Callable[[], None] = lambda: None
        self.leader = Ends({}, ())

    def end_offsets(self, client: Mapping[str, str], topics: Collection[str]) -> Any:
        return Ends(self.stable, topics)

    def high_watermarks(self, client: Mapping[str, str], topics: Collection[str]) -> Any:
        self.leader = Ends(self.watermarks, topics)
        return self.leader

    def log(self, client: Mapping[str, str], positions: Offsets) -> "Brokers":
        return self

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
        time.sleep(0.001)
        self.on_take()
        return []

    def trouble(self) -> str:
        return ""


class Ends:
    """See `EndOffsets` and `Watermarks`."""

    def __init__(self, ends: Offsets, topics: Collection[str]) -> None:
        self.ends, self.topics = ends, topics
        self.told: Offsets = {}
        self.fault = ""
        """When the connection ends next."""

    def last(self, topics: Collection[str] | None = None) -> Offsets:
        told, self.told = self.told, {}
        self.look("answered")
        return told or {tp: end for tp, end in self.ends.items() if tp[0] in (topics or self.topics)}

    def ask(self, topics: Collection[str]) -> None:
        self.look("asked")
        self.told = {tp: end for tp, end in self.ends.items() if tp[0] in topics}

    def look(self, state: str) -> None:
        if self.fault == state:
            self.fault = ""
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def follower(
    monkeypatch: pytest.MonkeyPatch,
    brokers: Brokers,
    awaited: Collection[str] = ("events",),
    **options: Collection[str],
) -> TableFollower:
    monkeypatch.setattr(table_follower, "EndOffsets", brokers.end_offsets)
    monkeypatch.setattr(table_follower, "Watermarks", brokers.high_watermarks)
    monkeypatch.setattr(table_follower, "LogFollower", brokers.log)
    topics = tuple(topic for topic, _ in brokers.stable)
    return TableFollower({}, topics, awaited, {}, 1, 1, **options)


def with_a_busy_table(brokers: Brokers) -> None:
    """Have each look at the log return new profiles."""
    begun = time.monotonic()

    def more() -> None:
        assert time.monotonic() - begun < DEADLINE_S, "still waiting"
        brokers.positions[PROFILES] += 1
        brokers.stable[PROFILES] = brokers.watermarks[PROFILES] = brokers.positions[PROFILES]

    brokers.on_take = more


def test_a_hanging_transaction_is_passed_over_although_another_table_is_busy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_follower, "OPEN_S", 0.1)
    brokers = Brokers({EVENTS: 0, PROFILES: 0}, {EVENTS: 1, PROFILES: 0})
    tables = follower(monkeypatch, brokers)
    with_a_busy_table(brokers)
    assert list(tables.read_to_ends(("events", "profiles"))) == []
    assert "transaction on events-0@1 has been open" in caplog.text


def test_each_of_two_hanging_transactions_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_follower, "OPEN_S", 0.1)
    schemas = "schemas", 0
    brokers = Brokers({EVENTS: 0, schemas: 0}, {EVENTS: 1, schemas: 0})
    tables = follower(monkeypatch, brokers, ("events", "schemas"))
    assert list(tables.read_to_ends(("events", "schemas"))) == []
    brokers.watermarks[schemas] = 1
    assert list(tables.read_to_ends(("events", "schemas"))) == []
    begun = time.monotonic()
    assert list(tables.read_to_ends(("events", "schemas"))) == []
    assert time.monotonic() - begun < 0.1


def test_records_that_do_not_arrive_are_reported_although_another_table_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_follower, "PATIENCE_S", 0.1)
    brokers = Brokers({EVENTS: 1, PROFILES: 0}, {EVENTS: 1, PROFILES: 0})
    tables = follower(monkeypatch, brokers)
    with_a_busy_table(brokers)
    with pytest.raises(LogUnavailableError, match="do not arrive"):
        list(tables.read_to_ends(("events", "profiles")))


def test_what_the_group_has_written_itself_is_read_before_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another group's open transaction may hide the promise that this group has committed after it began."""
    brokers = Brokers({EVENTS: 2, ("facts", 0): 5}, {EVENTS: 3, ("facts", 0): 7})
    tables = follower(monkeypatch, brokers, own=("facts",))
    brokers.positions |= {EVENTS: 2, ("facts", 0): 5}
    assert tables.lag() == {"facts": 2}
    brokers.positions["facts", 0] = 7
    assert tables.lag() == {}


@pytest.mark.parametrize("fault", ["", "asked", "answered"])
def test_a_table_is_read_to_the_end_that_it_had_at_the_look_or_later(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """What is written between look and reading is not waited for, unless the look has no answer."""
    brokers = Brokers({EVENTS: 0, PROFILES: 3}, {EVENTS: 0, PROFILES: 3})
    tables, taken = follower(monkeypatch, brokers), list[int]()
    brokers.positions[PROFILES] = 3
    brokers.leader.fault = fault
    tables.look(("events", "profiles"))
    brokers.stable[PROFILES] = brokers.watermarks[PROFILES] = 5

    def one_more() -> None:
        brokers.positions[PROFILES] += 1
        taken.append(brokers.positions[PROFILES])

    brokers.on_take = one_more
    assert list(tables.read_to_ends(("events", "profiles"))) == []
    assert taken == ([4, 5] if fault else [4])
