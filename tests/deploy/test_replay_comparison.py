"""The comparison of two sides' alerts: against a naive join, and each cause by an alert that has it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from harness import settings_of_nowhere
from harness.alert_records import alert
from harness.group_batches import as_records
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from deploy.replay.comparison import page, reading, report
from deploy.replay.comparison.differences import Kind, Side, join, side
from deploy.replay.comparison.labelled import weighed
from deploy.replay.record import ReplayError
from loadtests.oracle import Record

pytestmark = pytest.mark.unit

NOW = 1_750_000_000_000
TOPIC = "transactions"
RELEASE = "0.1.0+0123abcd"
RANGES = {0: (2, 60), 1: (5, 61)}
CHANGES: list[dict[str, Any]] = [
    {},
    {"decision": "decline", "rules": ["blocked_card"]},
    {"score": 0.5, "model": {"name": "card-fraud", "version": "2", "digest": "ab" * 32}},
    {"threshold": 0.9, "policy": "aa" * 32},
    {"score": None},
    {"features": {"count_5m": 7.0}, "score": 0.99},
    {"profile": {"status": "active", "partition": 0, "offset": 3, "arrival_time": 0, "age_ms": None}},
    {"suspicious_count": {"day": 2, "total": 2}},
    {"release": "0.2.0+00000000"},
]
DRAWN = st.dictionaries(
    st.integers(0, 70), st.tuples(st.integers(0, len(CHANGES) - 1), st.booleans()), max_size=30
)


def side_of(drawn: dict[int, tuple[int, bool]]) -> Side:
    """A side with the drawn alerts, in any order: number -> (change, whether it is suppressed)."""
    values = {
        is_suppressed: pa.chunked_array(
            [
                pa.array(
                    [orjson.dumps(alert(n, NOW + n, **CHANGES[change])) for n, (change, no) in items],
                    pa.large_binary(),
                )
                for items in ([i for i in reversed(drawn.items()) if i[1][1] == is_suppressed],)
            ],
            pa.large_binary(),
        )
        for is_suppressed in (False, True)
    }
    return side(values[False], values[True], RANGES, TOPIC)


def is_within(number: int) -> bool:
    start, end = RANGES[number % 2]
    return start <= number < end


def constant(change: int) -> Any:
    """The champion of a side: that of one change's alerts, for all arrivals."""
    example = alert(0, NOW, **CHANGES[change])
    digests = example["model"]["digest"], example["policy"]
    return lambda arrivals: tuple(np.full(arrivals.size, digest, dtype=object) for digest in digests)


def naive_kind(live: tuple[int, bool] | None, replay: tuple[int, bool] | None) -> str:
    """The kind of a difference, alert by alert; empty for none."""
    if live is None or replay is None:
        return Kind.ONLY_REPLAY if live is None else Kind.ONLY_LIVE
    if live == replay:
        return ""
    one, other = (alert(0, NOW, **CHANGES[change]) for change, _ in (live, replay))
    if live[1] != replay[1] or (not live[1] and one["decision"] != other["decision"]):
        return Kind.DECISION
    return Kind.SCORE if one["score"] != other["score"] else Kind.DETAIL


@given(DRAWN, DRAWN)
@examples(40, 2_000)
def test_counts_are_those_of_a_naive_join_of_the_alerts_within_the_range(
    live: dict[int, tuple[int, bool]], replay: dict[int, tuple[int, bool]]
) -> None:
    made = report.of(join(side_of(live), side_of(replay)), constant(0), constant(0), (RELEASE, RELEASE), {})
    kinds = [naive_kind(live.get(n), replay.get(n)) for n in sorted({*live, *replay}) if is_within(n)]
    assert made["differences"] == {kind: kinds.count(kind) for kind in Kind}
    assert made["equal"] == kinds.count("")
    assert {kind: sum(counts.values()) for kind, counts in made["causes"].items()} == made["differences"]
    for name, drawn in (("live", live), ("replay", replay)):
        within = [no for n, (_, no) in drawn.items() if is_within(n)]
        assert (made[name]["alerts"], made[name]["suppressed"]) == (within.count(False), within.count(True))
    counted = [number for n, (number, _) in live.items() if is_within(n)]
    assert made["by"]["rule"].get("blocked_card", [0, 0])[0] == counted.count(1)
    json.dumps(made)


@pytest.mark.parametrize(
    ("change", "kind", "cause"),
    [
        (1, Kind.DECISION, "other"),
        (2, Kind.SCORE, "model"),
        (3, Kind.DETAIL, "policy"),
        (5, Kind.SCORE, "feature: count_5m"),
        (6, Kind.DETAIL, "profile version"),
        (7, Kind.DETAIL, "earlier alerts of the card"),
        (8, Kind.DETAIL, "code"),
    ],
)
def test_a_pair_has_the_first_cause(change: int, kind: str, cause: str) -> None:
    joined = join(side_of({14: (0, False)}), side_of({14: (change, False)}))
    made = report.of(joined, constant(0), constant(change), (RELEASE, RELEASE), {})
    assert made["causes"][kind] == {cause: 1}
    (sample,) = made["samples"]
    assert (sample["cause"], sample["live"]["score"], sample["source"]["offset"]) == (cause, 0.93, 14)


@pytest.mark.parametrize(("change", "cause"), [(0, "state of the card"), (2, "model"), (3, "policy")])
def test_an_alert_of_one_side_has_the_cause_that_the_other_sides_champion_shows(
    change: int, cause: str
) -> None:
    joined = join(side_of({14: (0, False)}), side_of({}))
    made = report.of(joined, constant(0), constant(change), (RELEASE, RELEASE), {})
    assert made["causes"][Kind.ONLY_LIVE] == {cause: 1}


def test_another_release_is_the_cause_of_features_that_differ_with_it() -> None:
    CHANGES.append({"features": {"count_1m": 2.0}, "release": "0.2.0+00000000"})
    try:
        joined = join(side_of({14: (0, False)}), side_of({14: (len(CHANGES) - 1, False)}))
        made = report.of(joined, constant(0), constant(0), (RELEASE, "0.2.0+00000000"), {})
    finally:
        CHANGES.pop()
    assert made["causes"][Kind.DETAIL] == {"code: count_1m": 1}


def test_a_record_that_is_no_alert_is_an_error() -> None:
    values = pa.chunked_array([pa.array([b"no alert"], pa.large_binary())])
    with pytest.raises(ReplayError, match="who writes to it"):
        side(values, values.slice(0, 0), RANGES, TOPIC)


def test_labels_weigh_the_alerts_that_were_sent() -> None:
    labels = {
        (f"card-{n:06d}", f"tx-{n}"): fraud for n, fraud in ((11, True), (12, False), (13, True), (9, True))
    }
    weight = weighed(side_of({11: (0, False), 12: (0, False), 13: (0, True), 14: (0, False)}), labels)
    assert weight == {
        "fraud": 1, "genuine": 1, "unknown": 1, "precision": 0.5, "recall": 0.333333,
        "amount_of_fraud": {"EUR": 48.0}, "amount_of_genuine": {"EUR": 48.0},
    }  # fmt: skip
    assert weighed(side_of({11: (0, False)}), {})["precision"] is None


def test_limits_are_of_numbers_and_a_missing_number_keeps_none() -> None:
    made = {"differences": {"only_live": 3}, "replay": {"precision": None}, "by": {"rule": {}}}
    assert not report.broken(made, {"differences.only_live": {"max": 3, "min": 1}})
    assert report.broken(made, {"differences.only_live": {"max": 2}})
    assert report.broken(made, {"replay.precision": {"min": 0.1}})
    for path, limit in (
        ("differences", {"max": 2}),
        ("differences.typo", {"max": 2}),
        ("differences.only_live", {"mx": 2}),
    ):
        with pytest.raises(ReplayError, match="correct it"):
            report.broken(made, {path: limit})


def test_limits_are_not_kept_before_both_jobs_have_decided_the_range() -> None:
    made = {"remaining": 7, "differences": {"only_live": 0}}
    assert not report.broken(made, {})
    (fault,) = report.broken(made, {"differences.only_live": {"max": 0}})
    assert fault.startswith("7 transactions")


def test_a_cause_that_no_difference_has_keeps_the_limit_of_none() -> None:
    made = {"causes": {"only_live": {"model": 3}, "other_score": {}}}
    none = {"max": 0}
    assert not report.broken(
        made, {"causes.only_live.code": none, "causes.other_score.feature: amount": none}
    )
    assert report.broken(made, {"causes.only_live.model": none})
    for path in ("causes.only_live.cod", "causes.typo.code", "causes.code", "differences.code"):
        with pytest.raises(ReplayError, match="names no number"):
            report.broken(made, {path: none})


def test_limits_are_not_kept_if_nothing_was_compared() -> None:
    made = {"remaining": 0, "range": {0: (5, 5), 1: (7, 7)}, "not_kept": 12, "differences": {"only_live": 0}}
    limits = {"differences.only_live": {"max": 0}}
    assert report.broken(made, limits) == ["no transaction was compared"]
    assert not report.broken({**made, "range": {0: (5, 5), 1: (7, 8)}}, limits)


@pytest.mark.parametrize(
    "limit",
    ['{"max": "5"}', '{"max": null}', '{"max": true}', '{"max": NaN}', '{"min": -Infinity}', '{"mx": 5}',
     "{}", "5", '{"min": 1, "max": [2]}'],
)  # fmt: skip
def test_a_file_of_limits_is_refused_before_anything_is_compared(tmp_path: Path, limit: str) -> None:
    file = tmp_path / "limits.json"
    file.write_text(f'{{"differences.only_live": {limit}, "equal": {{"min": 1, "max": 2.5}}}}')
    with pytest.raises(ReplayError, match="give each limit as an object with min, max or both"):
        report.limits_in(file)
    file.write_text('{"equal": {"min": 1, "max": 2.5}}')
    assert report.limits_in(file) == {"equal": {"min": 1, "max": 2.5}}


def test_a_replay_whose_progress_is_gone_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Log:
        def __init__(self, *_: object) -> None: ...

        def ends(self, topic: str) -> dict[int, int]:
            return {0: 9}

        def committed(self, group: str, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
            return {(topics[0], 0): 9}

        def read(self, topic: str) -> list[object]:
            return []

    monkeypatch.setattr(reading, "TopicLog", Log)
    settings = settings_of_nowhere.settings()
    with pytest.raises(ReplayError, match="has no record left that says where the replay has begun"):
        reading.decided(settings, settings)


def test_the_page_stands_alone_and_escapes_what_records_say() -> None:
    CHANGES.append({"merchant_id": "<script>alert(1)</script>"})
    try:
        joined = join(side_of({14: (0, False)}), side_of({14: (len(CHANGES) - 1, False)}))
        made = report.of(joined, constant(0), constant(0), (RELEASE, RELEASE), {})
    finally:
        CHANGES.pop()
    of_replay = {"name": "better", "range": RANGES, "not_kept": 7}
    text = page.page({**made, **of_replay}, ["differences.only_live is 3"])
    assert "without 7 whose live alerts" in text
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http" not in text
    assert "differences.only_live is 3" in text


@pytest.mark.parametrize(
    ("first", "alerts", "expected"),
    [
        ([0, 0], {}, {0: (10, 100), 1: (20, 100)}),
        # about a partition of which records are left: after its first one
        ([7, 7], {0: [(0, 30), (1, 40)], 1: [(1, 25), (0, 50)]}, {0: (51, 100), 1: (41, 100)}),
        # each partition of the alerts is about one of the transactions, as with the same partitioner
        ([7, 7], {0: [(0, 30), (0, 40)], 1: [(1, 25)]}, {0: (60, 100), 1: (60, 100)}),
        # none is left
        ([7, 0], {}, {0: (100, 100), 1: (100, 100)}),
    ],
)
def test_transactions_are_compared_from_where_no_alert_about_them_can_be_deleted(
    first: list[int],
    alerts: dict[int, list[tuple[int, int]]],
    expected: dict[int, tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live, asked = settings_of_nowhere.settings(), []
    topic = live.topics.fraud_alerts

    def records(_: object, __: object, starts: dict[tuple[str, int], int]) -> Any:
        ((_, part), _) = next(iter(starts.items()))
        values = [
            orjson.dumps({"source": {"topic": TOPIC, "partition": of, "offset": offset}})
            for of, offset in alerts.get(part, ())
        ]
        return as_records(
            [Record(topic, part, 7 + n, NOW + n, None, value) for n, value in enumerate(values)]
        )

    def arrived(_: object, parts: set[int], since: int) -> dict[int, int]:
        asked.append(since)
        return dict.fromkeys(parts, 60)

    monkeypatch.setattr(reading, "_beginnings", lambda *_: {(topic, p): at for p, at in enumerate(first)})
    monkeypatch.setattr(reading, "_records", records)
    monkeypatch.setattr(reading, "_arrived", arrived)
    assert reading.kept(live, None, [topic], {0: (10, 100), 1: (20, 100)}) == expected
    assert set(asked) <= {NOW + reading.SKEW_MS}
