"""A rollout that cannot decide is a dead letter: the job continues, with the same outcome in any batches."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from harness.group_batches import as_records
from harness.job_world import (
    World,
    dead_letters,
    expected_alerts,
    load,
    model_ref,
    newer_ref,
    place,
    small_scorer,
    subset_ref,
)
from harness.log_world import HOUR, SECOND, TOPICS

from feature_store.catalogue import NAMES
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta
from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job.group.core import GroupCore
from streaming_job.group.rules import Rules
from streaming_job.group.silence import Silence

pytestmark = pytest.mark.unit

BAD = model_ref("5")
Load = Callable[[ModelRef], Scorer]


def fails(error: type[ModelError]) -> Load:
    def load_but_bad(ref: ModelRef) -> Scorer:
        if ref == BAD:
            raise error("it does not answer")
        return load(ref)

    return load_but_bad


def world(model: ModelRef) -> World:
    """Rollouts: r1 at 0, r2 with `model` at 10 s, r3 at 20 s; a transaction each second."""
    result = World(rollout=False, partitions=3)
    result.rollout("r1", 0, threshold=0.0)
    result.rollout("r2", 10 * SECOND, threshold=0.0, model=model)
    result.rollout("r3", 20 * SECOND, threshold=0.0, version="2")
    for second in range(30):
        result.tx(second * SECOND, 10.0 * second, card_id=f"c{second % 4}")
    return result


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelError, "model_refused"),
        (ModelMissingError, "model_unavailable"),
        (ModelUnavailableError, "model_unavailable"),
        (None, "incompatible_features"),
    ],
)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("cuts", [(), (5, 10, 11, 12, 25)], ids=["one batch", "some"])
def test_the_last_good_rollout_stays_in_force(
    error: type[ModelError] | None, reason: str, groups: int, cuts: tuple[int, ...]
) -> None:
    result = world(BAD if error else newer_ref())
    load_model = fails(error or ModelError)
    outcomes = result.run(cuts, groups=groups, load_model=load_model, rebuild_each_batch=True)
    assert dead_letters(outcomes) == [
        (TOPICS.model_rollouts, 0, 2, reason),
        (TOPICS.model_rollouts, 0, 3, "unknown_rollout"),
    ]
    assert sum(outcome.counts["rollouts"] for outcome in outcomes) == 4
    alerts = result.alerts(cuts=cuts, groups=groups, load_model=load_model)
    by_time = sorted(alerts, key=lambda alert: alert["arrival_time"])
    assert [alert["rollout_id"] for alert in by_time] == ["r1"] * 20 + ["r3"] * 10
    assert sorted(map(place, alerts)) == [place(a) for a in expected_alerts(result.expected(load_model))]


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("cuts", [(), (5, 10, 11, 12, 25)], ids=["one batch", "some"])
def test_a_rollout_in_another_partition_is_refused_and_not_folded(groups: int, cuts: tuple[int, ...]) -> None:
    """The topic has a second partition: r2's records are the first there, with the same offsets as r1's."""
    result = world(model_ref("2"))
    for offset in (0, 1):
        result.rollouts[2 + offset] = result.rollouts[2 + offset]._replace(partition=1, offset=offset)
    outcomes = result.run(cuts, groups=groups, rebuild_each_batch=True)
    assert dead_letters(outcomes) == [
        (TOPICS.model_rollouts, 1, offset, "wrong_partition") for offset in (0, 1)
    ]
    assert sum(outcome.counts["rollouts"] for outcome in outcomes) == 4
    alerts = result.alerts(cuts=cuts, groups=groups)
    by_time = sorted(alerts, key=lambda alert: alert["arrival_time"])
    assert [alert["rollout_id"] for alert in by_time] == ["r1"] * 20 + ["r3"] * 10
    assert sorted(map(place, alerts)) == [place(a) for a in expected_alerts(result.expected())]


def test_a_model_of_some_features_in_another_order_decides_like_the_oracle_says() -> None:
    result = world(subset_ref())
    alerts = sorted(result.alerts(groups=3), key=place)
    wanted = expected_alerts(result.expected())
    for ours, theirs in zip(alerts, wanted, strict=True):
        assert ours["score"] == pytest.approx(theirs["score"], rel=1e-9)
        assert [r["feature"] for r in ours["reasons"]] == [r["feature"] for r in theirs["reasons"]]
        assert list(ours["features"]) == list(NAMES)
    mine = [alert for alert in alerts if alert["rollout_id"] == "r2"]
    assert len(mine) == 10
    named = {reason["feature"] for alert in mine for reason in alert["reasons"]}
    assert "amount" in named <= set(small_scorer().feature_names)


def test_a_model_of_exactly_the_catalogues_columns_is_used_as_it_is() -> None:
    scorer = load(model_ref())
    assert scorer.on(NAMES) is scorer
    x = np.random.default_rng(0).normal(size=(50, len(NAMES)))
    wide, own = small_scorer().on(NAMES), [NAMES.index(name) for name in small_scorer().feature_names]
    assert np.array_equal(wide.score(x), small_scorer().score(x[:, own]))
    explanation = wide.explain(x)
    assert np.array_equal(explanation[:, own], small_scorer().explain(x[:, own]))
    assert np.count_nonzero(np.delete(explanation, own, axis=1)) == 0
    with pytest.raises(ModelError, match="amount"):
        small_scorer().on(NAMES[1:])


@pytest.mark.parametrize("cuts", [(), (3, 4, 5)], ids=["one batch", "some"])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_withdrawn_rollout_no_longer_decides(cuts: tuple[int, ...], groups: int) -> None:
    """r1 at 0    r2 at 3 s    r2 withdrawn at 6 s."""
    result = World(rollout=False, partitions=3)
    result.rollout("r1", 0, threshold=0.0)
    result.rollout("r2", 3 * SECOND, threshold=0.0)
    result.withdraw("r2", 6 * SECOND)
    for second in range(9):
        result.tx(second * SECOND, card_id=f"c{second % 3}")
    alerts = result.alerts(cuts=cuts, groups=groups, rebuild_each_batch=True)
    by_time = sorted(alerts, key=lambda alert: alert["arrival_time"])
    assert [alert["rollout_id"] for alert in by_time] == ["r1"] * 3 + ["r2"] * 3 + ["r1"] * 3


class Registry:
    """A registry from which models can disappear; it records the versions that it is asked for."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.asked: list[str] = []

    def load(self, ref: ModelRef) -> Scorer:
        self.asked.append(ref.version)
        if ref.version in self.gone:
            raise ModelUnavailableError("no answer")
        return load(replace(ref, version="1", uri=model_ref().uri, digest=model_ref().digest))


def test_the_model_in_force_is_loaded_before_a_transaction_needs_it() -> None:
    registry, result, store = Registry(), world(model_ref("2")), MemoryPieces()
    rules = replace(result.rules(), load_model=registry.load)
    core = opened(rules, store, Meta(), {})
    fold(core, result)
    assert registry.asked == ["1", "2", "2", "2"]  # the model of each rollout, then the one in force again
    core.seal(store, {})
    registry.asked = []
    opened(rules, store, Meta(), {})
    assert registry.asked == ["2"]


def test_the_verdict_on_a_rollout_is_kept_whatever_the_registry_has_now() -> None:
    """The state is older than the output: rollouts before Q, judged already, are folded again."""
    result = world(model_ref("5"))
    registry = Registry()
    rules = replace(result.rules(), load_model=registry.load)
    registry.gone = {"5"}
    first = opened(rules, MemoryPieces(), Meta(), {})
    fold(first, result)
    set_aside = first.outcome.set_aside
    assert set_aside == {2: "model_unavailable"}
    letters = [letter.offset for letter in first.outcome.dead_letters]
    assert letters == [2, 3]
    q = {(TOPICS.model_rollouts, 0): 6}
    for gone in (set(), {"5"}, {"2"}):  # the refused one is back, all are as before, a good one is missing
        registry.gone = gone
        again = opened(rules, MemoryPieces(), Meta(), q, set_aside)
        fold(again, result)
        assert again.outcome.set_aside == set_aside
        assert again.outcome.dead_letters == []


def test_a_model_with_lost_files_can_be_withdrawn_before_it_is_needed() -> None:
    result, registry, store = world(model_ref("2")), Registry(), MemoryPieces()
    rules = replace(result.rules(), load_model=registry.load)
    first = opened(rules, store, Meta(), {})
    fold(first, result)
    first.seal(store, {})
    registry.gone = {"2"}
    stuck = opened(rules, store, Meta(), {})
    with pytest.raises(ModelUnavailableError):
        decide(stuck, result)
    free = opened(rules, store, Meta(), {})
    for name in ("r2", "r3"):
        result.withdraw(name, HOUR, from_the_beginning=True)
    del result.rollouts[:6]  # they have been folded
    fold(free, result)
    decide(free, result)
    assert len(free.outcome.records["fraud_alerts"]) == 30
    assert free.outcome.rollout is not None
    assert free.outcome.rollout["rollout_id"] == "r1"


def opened(
    rules: Rules,
    store: MemoryPieces,
    meta: Meta,
    quiet: dict[tuple[str, int], int],
    told: dict[int, str] | None = None,
) -> GroupCore:
    return GroupCore(0, rules, GroupState(MemoryArena()), meta, store, Silence(quiet), told)


def fold(core: GroupCore, made: World) -> None:
    for records in as_records(made.rollouts):
        core.fold(records)


def decide(core: GroupCore, made: World) -> None:
    for records in as_records(made.transactions):
        core.decide(records)
