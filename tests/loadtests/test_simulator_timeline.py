"""Without a broker: labels merged with transactions by time; counts; profile changes; durations."""

from collections.abc import Iterator

import numpy as np
import orjson
import pyarrow as pa
import pytest
from harness.regrouped import regrouped
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import FraudError
from loadtests.durations import seconds
from loadtests.simulator.batch import EventBatch
from loadtests.simulator.chargebacks import Chargebacks
from loadtests.simulator.churn import Change, ProfileChange, ProfileChurn
from loadtests.simulator.disturbances import LATE, Disturbances
from loadtests.simulator.profiles import profiles
from loadtests.simulator.scenarios import STOLEN, FraudMix
from loadtests.simulator.tally import Tally
from loadtests.simulator.timeline import Records, merged, timeline
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from streaming_job.contracts import Contract, validate
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.unit

START = 1_790_000_000_000
TOPICS = Topics()


@pytest.fixture(scope="module")
def world() -> World:
    return World.create(7, cards=2_000, merchants=200)


def records(times: list[int], topic: str = "t") -> Records:
    names: list[bytes | None] = [str(i).encode() for i in range(len(times))]
    return Records(topic, np.array(times, dtype=np.int64), [b"k"] * len(times), names)


def test_labels_are_merged_with_the_transactions_by_time(world: World) -> None:
    stream = Stream(world, 500.0, START, fraud=FraudMix(share=0.05))
    labels = Chargebacks(1, delay_ms=10_000, spread=0.5)
    pieces = list(timeline(stream.blocks(events=50_000), labels, TOPICS, drain=True))
    times = np.concatenate([piece.at for piece in pieces])
    assert (np.diff(times) >= 0).all()
    assert sum(len(p) for p in pieces if p.topic == TOPICS.transactions) == 50_000
    assert sum(len(p) for p in pieces if p.topic == TOPICS.chargebacks) > 1_000


def test_every_known_fraud_is_reported_once_after_its_delay(world: World) -> None:
    stream = Stream(world, 500.0, START, fraud=FraudMix(share=0.05))
    batch = EventBatch.concat(list(stream.blocks(events=20_000)))
    labels = Chargebacks(1, delay_ms=60_000)
    labels.observe(batch.table, batch.accepted)
    at, keys, values = labels.due(float("inf"))
    reports = [orjson.loads(value) for value in values]
    for when, key, report in zip(at.tolist(), keys, reports, strict=True):
        validate(Contract.CHARGEBACK, report)
        assert report["reported_at"] == when
        assert report["card_id"].encode() == key
        assert report["label"] == "fraud"
    expected = batch.table.filter(pa.array(batch.fraud & (batch.disturbance <= LATE)))[
        "transaction_id"
    ].to_pylist()
    assert sorted(r["transaction_id"] for r in reports) == sorted(expected)
    # a duplicate may arrive later than its original: only the arrivals of accepted rows are compared
    originals = batch.take(batch.accepted)
    arrival = dict(
        zip(originals.table["transaction_id"].to_pylist(), originals.arrival.tolist(), strict=True)
    )
    assert all(r["reported_at"] == arrival[r["transaction_id"]] + 60_000 for r in reports)


def test_a_share_of_the_genuine_transactions_is_confirmed(world: World) -> None:
    batch = next(Stream(world, 500.0, START, disturbances=Disturbances.none()).blocks())
    labels = Chargebacks(1, delay_ms=1, fraud_share=0.0, genuine_share=0.1)
    labels.observe(batch.table)
    _, _, values = labels.due(float("inf"))
    assert len(values) == pytest.approx(len(batch) * 0.1, rel=0.15)
    assert {orjson.loads(value)["label"] for value in values} == {"genuine"}


@pytest.mark.parametrize("size", [100, 1_000, 7_777])
def test_labels_do_not_depend_on_the_batches(world: World, size: int) -> None:
    def all_labels(batches: Iterator[EventBatch]) -> list[tuple[bytes, bytes]]:
        labels = Chargebacks(1, delay_ms=5_000, spread=0.5, fraud_share=0.8, genuine_share=0.01)
        result: list[tuple[bytes, bytes]] = []
        for batch in batches:
            labels.observe(batch.table, batch.accepted)
            _, keys, values = labels.due(int(batch.arrival[-1]))
            result += zip(keys, values, strict=True)
        _, keys, values = labels.due(float("inf"))
        return sorted(result + list(zip(keys, values, strict=True)))

    stream = Stream(world, 500.0, START, fraud=FraudMix(share=0.05))
    assert all_labels(regrouped(stream.blocks(events=20_000), size)) == all_labels(
        stream.blocks(events=20_000)
    )


@given(st.lists(st.integers(0, 20), max_size=12), st.lists(st.integers(0, 20), max_size=12))
def test_merging_keeps_order_and_loses_nothing(many: list[int], few: list[int]) -> None:
    pieces = list(merged(records(sorted(many), "many"), records(sorted(few), "few")))
    times = [int(at) for piece in pieces for at in piece.at]
    assert times == sorted(many + few)
    for topic, given_times in (("many", many), ("few", few)):
        values = [value for piece in pieces if piece.topic == topic for value in piece.values]
        assert values == [str(i).encode() for i in range(len(given_times))]
    assert all(len(piece) for piece in pieces)


def test_a_tally_counts_only_what_was_sent(world: World) -> None:
    stream = Stream(world, 500.0, START, fraud=FraudMix(share=0.2))
    batches = list(regrouped(stream.blocks(events=9_000), 1_000))
    tally = Tally()
    watched = tally.watch(batches)
    for _ in range(8):  # more batches were made than sent
        next(watched)
    tally.finish(5_500)
    frauds = int(sum(batch.fraud.sum() for batch in batches[:5]) + batches[5].fraud[:500].sum())
    assert tally.lines()[0].startswith(f"fraud {frauds:,}: ")


def changes(world: World, until_ms: int, per_s: float = 5.0) -> list[ProfileChange]:
    result = []
    for change in ProfileChurn(
        world, 500.0, START, changes_per_s=per_s, fraud=FraudMix(share=0.05)
    ).changes():
        if change.at_ms >= until_ms:
            return result
        result.append(change)
    return result


def test_profile_changes_follow_from_the_seed_in_time_order(world: World) -> None:
    first = changes(world, START + 60_000)
    assert first == changes(world, START + 60_000)
    assert [c.at_ms for c in first] == sorted(c.at_ms for c in first)
    assert {c.change for c in first} == set(Change)


def test_stolen_cards_are_blocked_during_the_burst(world: World) -> None:
    fraud = FraudMix(share=0.05)
    batch = EventBatch.concat(
        list(Stream(world, 500.0, START, fraud=fraud, disturbances=Disturbances.none()).blocks(events=30_000))
    )
    stolen = batch.take(batch.scenario == STOLEN)
    blocks = changes(world, int(batch.arrival[-1]), per_s=0.0)
    assert blocks
    assert {c.change for c in blocks} == {Change.BLOCK}
    cards = np.array([int(str(c.values["card_id"])[5:]) for c in blocks])
    assert np.isin(cards, stolen.card).all()
    last = dict(zip(stolen.card.tolist(), stolen.arrival.tolist(), strict=True))
    still_used = [last[card] > block.at_ms for card, block in zip(cards.tolist(), blocks, strict=True)]
    assert np.mean(still_used) > 0.7


def test_profiles_keep_their_contract(world: World) -> None:
    for row in profiles(world, np.arange(500)).to_pylist():
        validate(Contract.PROFILE, row)


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7_200), ("1.5d", 129_600)]
)
def test_durations_are_parsed(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "x", "5 weeks", "-3s", "0s"])
def test_texts_that_are_no_duration_are_refused(text: str) -> None:
    with pytest.raises(FraudError, match="is not a duration"):
        seconds(text)
