"""The rollout that decides a transaction."""

from dataclasses import replace

import numpy as np
import orjson
import pytest
from harness.job_world import model_ref, newer_ref, scorer, subset_ref
from harness.log_world import TOPICS
from harness.rollout_records import challenger, event, proposed

from feature_store.catalogue import IDENTITIES
from feature_store.merchants.catalogue import computed
from loadtests.oracle import Record, RolloutLog
from models.errors import ModelMissingError, ModelUnavailableError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Demands, Event, Type, installation
from models.scoring import Scorer
from streaming_job.contracts import Reason
from streaming_job.decide.model_verdict import ModelJudge
from streaming_job.decide.rollout_history import EventVerdict, NoRolloutError, RolloutHistory, RolloutRecord

pytestmark = pytest.mark.unit


def events(*told: tuple[int, Event], first: int = 0) -> list[RolloutRecord]:
    """Records of events, each with its arrival."""
    return [
        RolloutRecord(arrival, offset, event.to_json(), b"r")
        for offset, (arrival, event) in enumerate(told, first)
    ]


def installed(
    name: str = "first", arrival: int = 10, model: ModelRef | None = None
) -> list[tuple[int, Event]]:
    """A proposal and its promotion, which arrive together."""
    both = installation(model or model_ref(), Policy(0.5, 10), name, "test", 0)
    return [(arrival, parsed) for parsed in both]


def withdrawn(name: str, arrival: int, seq: int = 3, **fields: bool) -> tuple[int, Event]:
    return arrival, event(Type.WITHDRAWN, name, seq, **fields)


def good(proposal: Event, offset: int, is_replaceable: bool) -> EventVerdict:
    return EventVerdict()


def never(proposal: Event, offset: int, is_replaceable: bool) -> EventVerdict:
    raise AssertionError("it has been judged before")


def folded(*records: RolloutRecord) -> tuple[RolloutHistory, list[tuple[int, Reason]]]:
    """A history, and its refused records."""
    history = RolloutHistory()
    letters = history.fold(records, TOPICS, good)
    return history, [(letter.offset, letter.reason) for letter in letters]


def deciding(history: RolloutHistory, *arrivals: int) -> list[str]:
    known, numbers = history.in_force(np.array(arrivals))
    return [known[number].champion.rollout_id for number in numbers]


def test_the_newest_rollout_before_the_arrival_decides() -> None:
    """rollout  r0 at 10    r1 at 20    r2 at 20
    arrival  5  10    19    20          21
    """
    history, refused = folded(*events(*installed("r0", 10), *installed("r1", 20), *installed("r2", 20)))
    assert refused == []
    assert deciding(history, 5, 10, 19, 20, 21) == ["r0", "r0", "r0", "r2", "r2"]
    assert deciding(history) == []


def test_a_rollout_with_an_earlier_timestamp_takes_effect_with_the_one_before() -> None:
    history, _ = folded(*events(*installed("r0", 0), *installed("r1", 20), *installed("r2", 10)))
    assert deciding(history, 15, 20) == ["r0", "r2"]


def test_records_count_in_the_order_of_their_offsets() -> None:
    history, _ = folded(*reversed(events(*installed("r0", 10), *installed("r1", 10))))
    history.fold(events(*installed("r2", 10), first=4), TOPICS, good)
    assert [offset for _, offset, *_ in history.records] == [0, 1, 2, 3, 4, 5]
    assert deciding(history, 10) == ["r2"]


def test_an_invalid_rollout_is_refused_without_effect() -> None:
    history = RolloutHistory()
    ours = events(*installed("r1", 10), first=1)
    too_many = (ours[0].value or b"").replace(b'"max_count_5m":10', b'"max_count_5m":1' + b"0" * 400)
    records = [
        RolloutRecord(0, 0, None, b"k"),
        *ours,
        RolloutRecord(20, 3, b"{"),
        RolloutRecord(20, 4, too_many),
    ]
    refused = history.fold(records, TOPICS, good)
    assert [(letter.offset, letter.arrival, letter.key, letter.reason) for letter in refused] == [
        (0, 0, b"k", Reason.EMPTY_VALUE),
        (3, 20, None, Reason.INVALID_VALUE),
        (4, 20, None, Reason.INVALID_VALUE),
    ]
    assert {(letter.topic, letter.partition) for letter in refused} == {(TOPICS.model_rollouts, 0)}
    assert refused[2].value == too_many
    assert deciding(history, 5, 30) == ["r1", "r1"]


@pytest.mark.parametrize("version", [1, 3])
def test_a_record_of_another_schema_version_is_refused_and_the_last_good_one_stays(version: int) -> None:
    first, second = events(*installed("r0", 10)), events(*installed("r1", 20), first=2)
    other = [
        replace(record, value=(record.value or b"").replace(b'_version":2', b'_version":%d' % version))
        for record in second
    ]
    history, refused = folded(*first, *other)
    assert refused == [(2, Reason.INVALID_VALUE), (3, Reason.INVALID_VALUE)]
    assert deciding(history, 30) == ["r0"]


def test_a_rollout_too_large_for_the_state_is_refused() -> None:
    """A promotion is padded with blanks to one byte above the limit; without that byte the model decides."""
    *before, last = events(*installed("r0", 10), *installed("r1", 20))
    value = last.value or b""
    for blanks, reasons, decides in ((65_537, [(3, Reason.RECORD_TOO_LARGE)], "r0"), (65_536, [], "r1")):
        padded = replace(last, value=value[:-1] + b" " * (blanks - len(value)) + b"}")
        history, refused = folded(*before, padded)
        assert refused == reasons
        assert deciding(history, 30) == [decides]
        log = RolloutLog()
        oracles = log.read(
            [Record("r", 0, at.offset, at.arrival, None, at.value) for at in (*before, padded)]
        )
        assert [(letter.offset, letter.reason) for letter in oracles] == reasons


@pytest.mark.parametrize("text", [b'"r1"', b'"card-fraud"', b'"test"'])
def test_text_that_only_pythons_json_accepts_is_refused(text: bytes) -> None:
    """A lone surrogate passes the contract, but would break the alerts and progress records that quote it."""
    *before, proposal, promotion = events(*installed("r0", 10), *installed("r1", 20))
    broken = replace(proposal, value=(proposal.value or b"").replace(text, b'"x\\ud800"', 1))
    history, refused = folded(*before, broken, promotion)
    assert refused == [(2, Reason.INVALID_VALUE), (3, Reason.UNKNOWN_ROLLOUT)]
    assert deciding(history, 30) == ["r0"]


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
def test_numbers_that_are_none_are_refused(number: bytes) -> None:
    """A state of the job would keep them as null; no answer of the sidecar can contain them."""
    *before, proposal, promotion = events(*installed("r0", 10), *installed("r1", 20))
    value = (proposal.value or b"").replace(b'"guards":null', b'"guards":{"alpha":' + number + b"}")
    assert value != proposal.value
    broken = replace(proposal, value=value)
    refused = [(2, Reason.INVALID_VALUE), (3, Reason.UNKNOWN_ROLLOUT)]
    assert folded(*before, broken, promotion)[1] == refused
    records = [Record("r", 0, at.offset, at.arrival, None, at.value) for at in (*before, broken, promotion)]
    assert [(letter.offset, letter.reason) for letter in RolloutLog().read(records)] == refused


def test_features_that_the_release_lacks_leave_the_last_good_one_in_force() -> None:
    history, refused = folded(
        *events(*installed("r0", 10), *installed("r1", 20, newer_ref()), *installed("r2", 30, subset_ref()))
    )
    assert refused == [(2, Reason.INCOMPATIBLE_FEATURES), (3, Reason.UNKNOWN_ROLLOUT)]
    assert history.set_aside == {2: "incompatible_features"}
    assert deciding(history, 15, 25, 30) == ["r0", "r0", "r2"]


def test_a_job_without_merchant_facts_refuses_a_model_that_needs_them_and_says_what_to_set() -> None:
    model = replace(model_ref("2"), features=computed(merchants=True))
    records = events(*installed("r0", 10), *installed("r1", 20, model))
    without, keeping = RolloutHistory(), RolloutHistory(computed(merchants=True))
    letter, _ = without.fold(records, TOPICS, good)
    assert (letter.offset, letter.reason) == (2, Reason.INCOMPATIBLE_FEATURES)
    assert letter.detail.startswith("a job without merchant facts does not compute merchant_count_7d:1, ")
    assert letter.detail.endswith(
        "; roll out a model without them, or run a job with FRAUD_MERCHANT_FACTS=true"
    )
    assert not keeping.fold(records, TOPICS, good)
    assert deciding(without, 30) == ["r0"]
    assert deciding(keeping, 30) == ["r1"]


def test_each_release_decides_by_the_features_that_it_computes() -> None:
    """Rollouts that need features which a release lost are passed over until a release has them again."""
    history, _ = folded(*events(*installed("r0", 10), *installed("r1", 20, subset_ref())))
    saved = orjson.loads(orjson.dumps(history.records))
    poor = RolloutHistory.restore(saved, never, subset_ref().features)
    assert deciding(poor, 10, 20) == ["r1", "r1"]
    back = RolloutHistory.restore(orjson.loads(orjson.dumps(poor.records)), never)
    assert deciding(back, 10, 20) == ["r0", "r1"]


def test_a_verdict_on_the_model_is_kept() -> None:
    def judge(proposal: Event, offset: int, is_replaceable: bool) -> EventVerdict:
        assert is_replaceable == (offset > 0)
        return EventVerdict(Reason.MODEL_REFUSED, "no") if offset == 2 else EventVerdict()

    history = RolloutHistory()
    records = events(*installed("r0", 10), *installed("r1", 20), *installed("r2", 30))
    letter, _ = history.fold(records, TOPICS, judge)
    assert (letter.offset, letter.reason, letter.detail) == (2, Reason.MODEL_REFUSED, "no")
    restored = RolloutHistory.restore(orjson.loads(orjson.dumps(history.records)), never)
    assert restored == history
    assert restored.set_aside == {2: "model_refused"}
    assert deciding(restored, 20, 30) == ["r0", "r2"]


def test_a_failed_judgement_leaves_no_verdict() -> None:
    def judge(proposal: Event, offset: int, is_replaceable: bool) -> EventVerdict:
        raise ModelUnavailableError("no answer")

    history = RolloutHistory()
    with pytest.raises(ModelUnavailableError):
        history.fold(events(*installed()), TOPICS, judge)
    assert history == RolloutHistory()


def test_a_withdrawal_brings_back_the_last_good_one_from_its_arrival_on() -> None:
    history, refused = folded(
        *events(
            *installed("r0", 10), *installed("r1", 20), *installed("r2", 30), withdrawn("r1", 40),
            withdrawn("r2", 50), *installed("r5", 60),
        )
    )  # fmt: skip
    assert refused == []
    assert deciding(history, 15, 25, 30, 45, 50, 60) == ["r0", "r1", "r2", "r2", "r0", "r5"]
    restored = RolloutHistory.restore(orjson.loads(orjson.dumps(history.records)), never)
    assert restored == history


def test_withdrawals_from_the_beginning_concern_undecided_transactions() -> None:
    history, refused = folded(
        *events(
            *installed("r0", 10), *installed("r1", 20), *installed("r2", 30), withdrawn("r1", 35),
            withdrawn("r2", 40, from_the_beginning=True),
        )
    )  # fmt: skip
    assert refused == []
    assert deciding(history, 15, 25, 30, 35, 45) == ["r0", "r1", "r1", "r0", "r0"]


def test_withdrawals_of_unknown_rollouts_and_of_the_last_one_are_refused() -> None:
    history, refused = folded(
        *events(
            withdrawn("r1", 5), *installed("r1", 10), withdrawn("r1", 20, from_the_beginning=True),
            *installed("r3", 30, newer_ref()), withdrawn("r1", 40), withdrawn("r3", 50),
        )
    )  # fmt: skip
    assert refused == [
        (0, Reason.UNKNOWN_ROLLOUT),
        (3, Reason.LAST_ROLLOUT),
        (4, Reason.INCOMPATIBLE_FEATURES),
        (5, Reason.UNKNOWN_ROLLOUT),
        (6, Reason.LAST_ROLLOUT),
        (7, Reason.UNKNOWN_ROLLOUT),
    ]
    assert deciding(history, 5, 60) == ["r1", "r1"]


def test_a_restored_history_is_equal_and_continues() -> None:
    history, _ = folded(*events(*installed("r0", 10), *installed("r1", 20)))
    restored = RolloutHistory.restore(orjson.loads(orjson.dumps(history.records)), never)
    assert restored == history
    restored.fold(events(*installed("r2", 30), first=4), TOPICS, good)
    assert deciding(restored, 10, 20, 30) == ["r0", "r1", "r2"]
    assert len(history.records) == 4


def test_without_a_rollout_no_transaction_can_be_decided() -> None:
    for history in (RolloutHistory(), RolloutHistory.restore([], never)):
        with pytest.raises(NoRolloutError, match="fraud rollouts propose --promote"):
            deciding(history, 0)


def trial(name: str = "r", start: int = 20) -> list[tuple[int, Event]]:
    """A rollout proposed at `start`; 10, 20, 30 and 40 ms later: shadow, canary, paused, resumed."""
    kinds = (Type.SHADOW_STARTED, Type.CANARY_SET, Type.PAUSED, Type.RESUMED)
    result = [proposed(name, challenger(model_ref("2")), challenger(model_ref("3"), "s", "shadow"))]
    result += [event(kind, name, seq) for seq, kind in enumerate(kinds, 2)]
    return [(start + 10 * number, event) for number, event in enumerate(result)]


def plans(history: RolloutHistory, *arrivals: int) -> list[tuple[str, int, str, int]]:
    """(champion's rollout, number of challengers, canary, its share in basis points) at each arrival."""
    known, numbers = history.in_force(np.array(arrivals))
    in_force = (known[number] for number in numbers)
    return [
        (plan.champion.rollout_id, len(plan.challengers), plan.canary, plan.share_bp) for plan in in_force
    ]


def test_each_event_applies_to_arrivals_from_its_timestamp_on() -> None:
    """`first` in force at 10; `r` proposed 20, shadow 30, canary 40, paused 50, resumed 60, promoted 70."""
    ended = (70, event(Type.PROMOTED, "r", 6))
    history, refused = folded(*events(*installed(), *trial(), ended))
    assert refused == []
    assert plans(history, 5, 29, 30, 39, 40, 49, 50, 60, 69, 70) == [
        ("first", 0, "", 0), ("first", 0, "", 0), ("first", 2, "", 0), ("first", 2, "", 0),
        ("first", 2, "b", 1_000), ("first", 2, "b", 1_000), ("first", 2, "", 0),
        ("first", 2, "b", 1_000), ("first", 2, "b", 1_000), ("r", 0, "", 0),
    ]  # fmt: skip
    assert [(step.offset, step.since) for step in history.events][-2:] == [(6, 60), (7, 70)]


@pytest.mark.parametrize("cut", range(10))
def test_events_fold_to_the_same_history_in_any_batches_and_after_restores(cut: int) -> None:
    late = (25, event(Type.ROLLED_BACK, "r", 6))
    records = events(*installed(), *trial(), late, *installed("second", 90))
    whole, refused = folded(*records)
    assert refused == []
    history, _ = folded(*records[:cut])
    restored = RolloutHistory.restore(orjson.loads(orjson.dumps(history.records)), never)
    assert restored == history
    restored.fold(records[cut:], TOPICS, good)
    assert restored == whole
    assert plans(whole, 59, 60, 90) == [("first", 2, "", 0), ("first", 0, "", 0), ("second", 0, "", 0)]


def test_refused_events_change_nothing_and_stay_refused() -> None:
    records = events(
        *installed(), *trial()[:2],
        (50, event(Type.RESUMED, "r", 3)), (51, event(Type.PAUSED, "r", 9)), (52, event(Type.PAUSED, "q", 1)),
        (53, proposed("q", challenger(model_ref("2")))), (54, event(Type.WITHDRAWN, "first", 3)),
        (55, event(Type.CANARY_SET, "r", 3)),
    )  # fmt: skip
    history, refused = folded(*records)
    conflict = Reason.ROLLOUT_CONFLICT
    assert refused == [
        (4, conflict), (5, conflict), (6, Reason.UNKNOWN_ROLLOUT), (7, conflict), (8, Reason.LAST_ROLLOUT),
    ]  # fmt: skip
    assert history.set_aside == {}
    assert plans(history, 54, 55) == [("first", 2, "", 0), ("first", 2, "b", 1_000)]
    assert RolloutHistory.restore(orjson.loads(orjson.dumps(history.records)), never) == history


def test_the_job_refuses_a_promotion_without_a_second_person() -> None:
    """A canary of every card is a promotion."""
    opened = proposed("r", challenger(model_ref("2")), demands=Demands(four_eyes=True))
    everything = event(Type.CANARY_SET, "r", 3, share_bp=10_000)
    approved = replace(everything, actor="bob", approved_by="bob", idempotency_key="b")
    records = events(
        *installed(), (20, opened), (30, event(Type.SHADOW_STARTED, "r", 2)), (40, everything),
        (50, approved), (60, event(Type.ROLLED_BACK, "r", 4)),
    )  # fmt: skip
    missing = Reason.SECOND_PERSON_MISSING
    history, refused = folded(*records)
    assert refused == [(4, missing)]
    assert plans(history, 40, 50, 70) == [("first", 1, "", 0), ("first", 1, "b", 10_000), ("first", 0, "", 0)]
    assert RolloutHistory.restore(orjson.loads(orjson.dumps(history.records)), never) == history


def test_repetition_is_no_dead_letter_and_no_step() -> None:
    again = replace(trial()[1][1], created_at=9)
    history, refused = folded(*events(*installed(), *trial()[:3], (50, again)))
    assert refused == []
    assert [step.offset for step in history.events] == [0, 1, 2, 3, 4]
    assert plans(history, 50) == [("first", 2, "b", 1_000)]


def test_a_proposal_with_one_unusable_model_is_refused_as_a_whole() -> None:
    lacking = proposed("r", challenger(model_ref("2")), challenger(newer_ref(), "s", "shadow"))
    history, refused = folded(*events(*installed(), (20, lacking), (30, event(Type.SHADOW_STARTED, "r", 2))))
    assert refused == [(2, Reason.INCOMPATIBLE_FEATURES), (3, Reason.UNKNOWN_ROLLOUT)]
    assert history.set_aside == {2: "incompatible_features"}
    assert history.line.open is None
    # verdicts are final: a release that has the features does not open the rollout
    able = RolloutHistory.restore(history.records, never, (*IDENTITIES, "count_1h:2"))
    assert (able.line, able.set_aside) == (history.line, history.set_aside)


def test_every_challenger_is_judged() -> None:
    asked = []

    def load(ref: ModelRef) -> Scorer:
        asked.append(ref.version)
        if ref.version == "3":
            raise ModelMissingError("no such version")
        return scorer()

    history = RolloutHistory()
    letters = history.fold(events(*installed(), *trial()), TOPICS, ModelJudge(load, 0, {}))
    assert asked == ["1", "2", "3"]
    assert letters[0].reason is Reason.MODEL_UNAVAILABLE
    assert {letter.reason for letter in letters[1:]} == {Reason.UNKNOWN_ROLLOUT}
    assert plans(history, 99) == [("first", 0, "", 0)]


def test_the_verdict_on_a_proposal_is_kept() -> None:
    judge = ModelJudge(lambda _: scorer(), 3, {2: Reason.INCOMPATIBLE_FEATURES})
    history = RolloutHistory()
    (letter,) = history.fold(events(*installed(), trial()[0]), TOPICS, judge)
    assert (letter.offset, letter.reason) == (2, Reason.INCOMPATIBLE_FEATURES)


def test_release_that_lost_features_passes_over_the_champions_that_need_them() -> None:
    records = events(*installed(model=subset_ref()), *installed("second", 20), *trial(start=30))
    history, _ = folded(*records)
    poor = RolloutHistory.restore(history.records, never, subset_ref().features)
    assert poor.line == history.line
    assert plans(poor, 15, 25, 50) == [("first", 0, "", 0), ("first", 0, "", 0), ("first", 0, "b", 1_000)]
    assert plans(history, 50) == [("second", 2, "b", 1_000)]


def test_a_withdrawal_from_the_beginning_leaves_the_open_trial_as_it_is() -> None:
    again = withdrawn("second", 70, from_the_beginning=True)
    history, refused = folded(*events(*installed(), *installed("second", 20), *trial(), again))
    assert refused == []
    assert plans(history, 15, 25, 45, 75) == [
        ("first", 0, "", 0), ("first", 0, "", 0), ("first", 2, "b", 1_000), ("first", 2, "b", 1_000),
    ]  # fmt: skip
