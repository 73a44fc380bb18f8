"""The simulated world and its stream: determined by the seed, labelled, valid, with given shares of fraud."""

from collections import Counter

import numpy as np
import orjson
import pandas as pd
import pytest
from harness.regrouped import regrouped

from feature_store.errors import FraudError
from loadtests.simulator import countries
from loadtests.simulator.batch import EventBatch
from loadtests.simulator.disturbances import DUPLICATE, NAMES, Disturbances
from loadtests.simulator.scenarios import COMPROMISED, STOLEN, TRAVEL, UNUSUAL, FraudMix
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from streaming_job.contracts import Contract, validate

pytestmark = pytest.mark.unit

START = 1_790_000_000_000
RATE = 500.0
HEAVY = Disturbances(late=0.05, out_of_order=0.05, future=0.01, malformed=0.05, duplicated=0.05)


@pytest.fixture(scope="module")
def world() -> World:
    return World.create(7, cards=5_000, merchants=500)


def encoded(batches: list[EventBatch]) -> list[tuple[bytes, bytes | None]]:
    return [pair for batch in batches for pair in zip(*batch.encode(), strict=True)]


def frame(world: World, *, events: int, share: float = 0.01) -> pd.DataFrame:
    stream = Stream(world, RATE, START, fraud=FraudMix(share=share), disturbances=Disturbances.none())
    return EventBatch.concat(list(stream.blocks(events=events))).table.to_pandas()


def test_the_same_seed_gives_the_same_bytes(world: World) -> None:
    again = World.create(7, cards=5_000, merchants=500)
    first, second = (
        encoded(list(Stream(w, RATE, START, disturbances=HEAVY).blocks(events=30_000)))
        for w in (world, again)
    )
    assert first == second


@pytest.mark.parametrize("size", [1_000, 8_192, 29_999, 100_000])
def test_the_size_of_the_batches_changes_nothing(world: World, size: int) -> None:
    whole = encoded(list(Stream(world, RATE, START, disturbances=HEAVY).blocks(events=30_000)))
    blocks = Stream(world, RATE, START, disturbances=HEAVY).blocks(events=30_000)
    batches = list(regrouped(blocks, size))
    assert encoded(batches) == whole
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)


def test_another_seed_or_another_start_gives_other_transactions(world: World) -> None:
    def ids(stream: Stream) -> set[str]:
        return {
            name
            for batch in stream.blocks(events=5_000)
            for name in batch.table["transaction_id"].to_pylist()
        }

    base = ids(Stream(world, RATE, START))
    assert not base & ids(Stream(world, RATE, START - 86_400_000))
    assert not base & ids(Stream(World.create(8, cards=5_000, merchants=500), RATE, START))


def test_every_undisturbed_record_keeps_the_contract(world: World) -> None:
    stream = Stream(world, RATE, START, fraud=FraudMix(share=0.1), disturbances=Disturbances.none())
    for batch in stream.blocks(events=2_000):
        keys, values = batch.encode()
        for key, value in zip(keys, values, strict=True):
            record = orjson.loads(value or b"")
            validate(Contract.TRANSACTION, record)
            assert record["card_id"].encode() == key


def test_records_arrive_in_order_at_the_given_rate_at_their_event_times(world: World) -> None:
    table = frame(world, events=100_000)
    arrival = table["arrival_time"].to_numpy()
    assert arrival[0] >= START
    assert (np.diff(arrival) >= 0).all()
    assert (table["event_time"] == table["arrival_time"]).all()
    assert len(table) / (arrival[-1] - START) * 1_000 == pytest.approx(RATE, rel=0.02)
    assert table["transaction_id"].is_unique


def test_a_stream_ends_before_the_given_time(world: World) -> None:
    last = list(Stream(world, RATE, START).blocks(until_ms=START + 20_000))[-1]
    assert START + 19_900 < last.arrival[-1] < START + 20_000


def test_frauds_have_the_given_shares(world: World) -> None:
    table = frame(world, events=400_000, share=0.05)
    assert table["label"].mean() == pytest.approx(0.05, rel=0.1)
    scenarios = table.loc[table["label"] == 1, "scenario"].value_counts(normalize=True)
    wanted = {
        "stolen_card": 0.4,
        "compromised_merchant": 0.25,
        "unusual_amount": 0.2,
        "impossible_travel": 0.15,
    }
    for name, share in wanted.items():
        assert scenarios[name] == pytest.approx(share, rel=0.15), name
    assert set(table.loc[table["label"] == 0, "scenario"]) == {""}


def test_fraud_is_under_way_when_the_stream_begins(world: World) -> None:
    table = frame(world, events=20_000, share=0.05)
    assert table["label"][:5_000].mean() == pytest.approx(0.05, rel=0.5)


def test_a_stolen_card_shows_as_a_burst(world: World) -> None:
    batch = EventBatch.concat(list(Stream(world, 50.0, START).blocks(events=200_000)))
    stolen = batch.take(batch.scenario == STOLEN)
    bursts = pd.DataFrame({"card": stolen.card, "at": stolen.arrival}).groupby("card")["at"]
    gaps = bursts.diff().dropna()
    # a card of this world is used every 100 s
    assert gaps.median() < 10_000
    assert bursts.size().median() >= 6


def test_a_compromised_merchant_shows_as_many_cards_at_one_merchant(world: World) -> None:
    batch = EventBatch.concat(list(Stream(world, RATE, START).blocks(events=200_000)))
    hit = batch.take(batch.scenario == COMPROMISED)
    per_merchant = pd.DataFrame({"card": hit.card, "merchant": hit.merchant}).groupby("merchant")["card"]
    assert per_merchant.nunique().max() >= 15
    assert len(per_merchant) < len(hit) / 8


def test_unusual_amounts_are_several_times_the_usual(world: World) -> None:
    batch = EventBatch.concat(list(Stream(world, RATE, START).blocks(events=200_000)))
    ratio = batch.amount / world.cards.mean_amount[batch.card]
    assert (ratio[batch.scenario == UNUSUAL] > 5.9).all()
    assert np.median(ratio[~batch.fraud]) < 1.5


def test_impossible_travel_is_by_hand_and_far_from_home(world: World) -> None:
    batch = EventBatch.concat(list(Stream(world, RATE, START).blocks(events=200_000)))
    away = batch.take(batch.scenario == TRAVEL)
    home, abroad = world.cards.country[away.card], world.merchants.country[away.merchant]
    assert (countries.distances_km()[home, abroad] > countries.FAR_KM).all()
    assert "ecom" not in set(away.table["channel"].to_pylist())


def test_disturbances_have_the_given_shares_and_names(world: World) -> None:
    batch = EventBatch.concat(list(Stream(world, RATE, START, disturbances=HEAVY).blocks(events=200_000)))
    names = Counter(batch.table["disturbance"].to_pylist())
    shares = {name: count / len(batch) for name, count in names.items()}
    assert shares["out_of_order"] == pytest.approx(0.05, rel=0.1)
    assert shares["late"] + shares["too_late"] == pytest.approx(0.05, rel=0.1)
    assert shares["future_event_time"] == pytest.approx(0.01, rel=0.2)
    assert shares["duplicate"] == pytest.approx(0.05, rel=0.15)
    assert sum(share for name, share in shares.items() if name.startswith("malformed:")) == pytest.approx(
        0.05, rel=0.1
    )
    assert set(names) == set(NAMES)


def test_shifted_event_times_fit_their_names(world: World) -> None:
    table = EventBatch.concat(
        list(Stream(world, RATE, START, disturbances=HEAVY).blocks(events=100_000))
    ).table
    shift = (table.to_pandas().assign(by=lambda t: t["event_time"] - t["arrival_time"])).groupby(
        "disturbance"
    )["by"]
    day = 86_400_000
    assert (shift.get_group("out_of_order").between(-30_000, -100)).all()
    assert (shift.get_group("late").between(-6 * day, -60_000)).all()
    assert (shift.get_group("too_late") <= -8 * day).all()
    assert (shift.get_group("future_event_time") >= 600_000).all()
    assert (shift.get_group("") == 0).all()


def test_a_duplicate_repeats_an_earlier_record_byte_for_byte(world: World) -> None:
    batch = EventBatch.concat(list(Stream(world, RATE, START, disturbances=HEAVY).blocks(events=100_000)))
    _, values = batch.encode()
    seen: set[bytes | None] = set()
    for value, disturbance in zip(values, batch.disturbance, strict=True):
        if disturbance == DUPLICATE:
            assert value in seen
        seen.add(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: World.create(1, cards=0), "cards"),
        (lambda w: World.create(1, merchants=3), "merchants"),
        (lambda w: World.create(-1), "negative"),
        (lambda w: Stream(w, 0.0, START), "rate"),
        (lambda w: Stream(w, 10.0, -5), "start"),
        (lambda w: FraudMix(share=0.9), "fraud share"),
        (lambda w: FraudMix(stolen_card=-1), "scenarios"),
        (lambda w: Disturbances(late=0.9, malformed=0.2), "disturbances"),
    ],
)
def test_impossible_worlds_and_streams_are_refused(world: World, make: object, message: str) -> None:
    with pytest.raises(FraudError, match=message):
        make(world)  # type: ignore[operator]


def test_a_world_without_fraud_has_none(world: World) -> None:
    assert frame(world, events=20_000, share=0.0)["label"].sum() == 0
