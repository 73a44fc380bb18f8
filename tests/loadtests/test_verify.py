"""The audit finds planted faults: missing, repeated, foreign and changed records, and wrong totals."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence

import pytest
from audited_log import (
    HEADERS,
    RELEASE,
    MemoryLog,
    audit,
    changed,
    counts,
    job_output,
    letter_of,
    refused,
)
from harness.log_world import DAY, HOUR, START
from oracle_world import World

from loadtests.audit.comparison import UncomparedRecords
from loadtests.audit.findings import Findings
from loadtests.audit.moves import Seam
from loadtests.audit.progress_audit import ProgressAudit
from loadtests.audit.topic_log import TopicReadError
from loadtests.audit.verify import VerifyError
from loadtests.oracle import Record
from streaming_job.contracts.topics import DIGESTED, Topics
from streaming_job.log.losses import FIELD, Losses

pytestmark = pytest.mark.unit

T = Topics(transactions="t")


def progress(
    commit_id: int,
    *,
    group: int = 0,
    spans: Sequence[tuple[str, int, int, int]] = (),
    total: Mapping[str, int] | None = None,
    commits: int | None = None,
    **counts: int,
) -> Record:
    """A progress record of one of two key groups; spans are (topic, partition, start offset, end offset)."""
    value = {
        "query_id": "q",
        "release": RELEASE,
        "key_group": group,
        "key_groups": 2,
        "commit_id": commit_id,
        "counts": {"alerts": 0, "dead_letters": 0, **counts},
        "digests": {name: hashlib.sha256().hexdigest() for name in DIGESTED.values()},
        "partitions": [
            {"topic": topic, "partition": partition, "start_offset": start, "end_offset": end}
            for topic, partition, start, end in spans
        ],
        "totals": {"since": 1, "commits": commits or commit_id, "counts": total or {}, "trials": {}},
        "trials": {},
    }
    return Record("job-progress", 0, commit_id, START, b"job", json.dumps(value).encode(), HEADERS)


def problems(
    *records: Record, ends: Mapping[tuple[str, int], int] | None = None, recorded: int = 0
) -> list[str]:
    audit = ProgressAudit(T, ends or {}, {0: recorded})
    for record in records:
        audit.add_progress(record)
    audit.check()
    return audit.problems


@pytest.mark.parametrize(("late", "commits", "found"), [(2, 3, 0), (1, 3, 1), (3, 3, 1), (2, 4, 1)])
def test_totals_must_continue_from_the_commit_before(late: int, commits: int, found: int) -> None:
    records = [
        progress(1, late=2, total={"late": 2}),
        progress(2, total={"late": 2}),
        progress(3, total={"late": late}, commits=commits),
    ]
    assert len(problems(*records)) == found


def test_each_group_numbers_its_commits_and_heartbeats_move_no_offset() -> None:
    """Each commit_id with its partition of topic t and its offsets (n-n: a heartbeat), in order of time.

    group 0   1: t0 0-5             2: t0 5-5   3: t0 5-9
    group 1              7: t1 3-4                          8: t1 4-4
    """
    records = [
        progress(1, spans=[("t", 0, 0, 5), ("p", 0, 0, 2)]),
        progress(7, group=1, spans=[("t", 1, 3, 4), ("p", 0, 0, 4)]),
        progress(2, spans=[("t", 0, 5, 5), ("p", 0, 2, 2)]),
        progress(3, spans=[("t", 0, 5, 9), ("p", 0, 2, 2)]),
        progress(8, group=1, spans=[("t", 1, 4, 4), ("p", 0, 4, 4)]),
    ]
    ends = {("t", 0): 9, ("t", 1): 4}
    assert problems(*records, ends=ends) == []
    audit = ProgressAudit(T, ends)
    for record in records:
        audit.add_progress(record)
    assert audit.table_ends() == ({("p", 0): 4}, {("p", 0): 2})


def test_a_group_without_progress_has_read_no_table() -> None:
    audit = ProgressAudit(T, {})
    audit.add_progress(progress(1, spans=[("p", 0, 0, 2)]))
    assert audit.table_ends() == ({("p", 0): 2}, {("p", 0): 0})


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (progress(2, spans=[("t", 0, 4, 9)]), "commit 2 of key group 0: t[0] goes from 4 to 9, "),
        (progress(2, spans=[("t", 0, 6, 9)]), "the previous commit ended at 5"),
        (progress(2, spans=[("t", 0, 5, 4)]), "goes from 5 to 4"),
        (progress(3, spans=[("t", 0, 5, 9)]), "key group 0: commits 1 to 3 are not each there once"),
        (progress(1, spans=[("t", 0, 0, 5)]), "commit 1 of key group 0 was written twice"),
        (progress(2, spans=[("t", 0, 5, 9), ("t", 1, 0, 1)]), "t[1] belongs to another key group"),
        (progress(2, alerts=1), "progress counts 1 alerts, 0 found"),
    ],
)  # fmt: skip
def test_faults_of_progress_are_found(second: Record, words: str) -> None:
    result = problems(progress(1, spans=[("t", 0, 0, 5)]), second, ends={("t", 0): 9, ("t", 1): 9})
    assert any(words in problem for problem in result)


def test_commits_beyond_the_audited_offsets_are_ignored() -> None:
    first, second = progress(1, spans=[("t", 0, 0, 5)]), progress(2, spans=[("t", 0, 6, 9)])
    assert problems(first, second, ends={("t", 0): 8}) == []


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "is_apart"),
    [("t", 0, 4, False), ("t", 0, 5, True), ("t", 1, 0, True), ("profiles", 0, 9, False)],
)
def test_an_alert_that_was_committed_apart_from_its_transaction_is_found(
    topic: str, partition: int, offset: int, is_apart: bool
) -> None:
    audit = ProgressAudit(T, {("t", 0): 9, ("t", 1): 9})
    audit.add_progress(progress(1, spans=[("t", 0, 0, 5)], alerts=1))
    audit.add_progress(progress(2, spans=[("t", 0, 5, 9)]))
    value = {"source": {"topic": topic, "partition": partition, "offset": offset}}
    audit.add("fraud_alerts", Record("fraud-alerts", 0, 0, START, b"c", json.dumps(value).encode(), HEADERS))
    audit.check()
    place = f"commit 1 of key group 0: among the alerts is one about {topic}[{partition}]@{offset}, "
    assert any(place in problem for problem in audit.problems) == is_apart


@pytest.mark.parametrize(
    ("offsets", "recorded", "hidden"),
    [
        ({("t", 0): 12, ("t", 1): 4}, 9, None),
        ({("t", 0): 9, ("t", 1): 4}, 9, None),  # the newest commit may be visible before its offsets
        ({("t", 0): 5, ("t", 1): 4}, 9, 2),
        (
            {("t", 0): 5, ("t", 1): 4},
            3,
            None,
        ),  # later ones may have been written after the look at the offsets
        ({("t", 1): 4}, 9, 1),
    ],
)
def test_committed_offsets_that_a_tool_has_moved_or_deleted_hide_no_commit(
    offsets: Mapping[tuple[str, int], int], recorded: int, hidden: int | None
) -> None:
    records = [
        progress(1, spans=[("t", 0, 0, 5)]),
        progress(2, spans=[("t", 0, 5, 9)]),
        progress(3, spans=[("t", 0, 9, 12)]),
        progress(8, group=1, spans=[("t", 1, 0, 4)]),
    ]
    found = problems(*records, ends=offsets, recorded=recorded)
    assert len(found) == (hidden is not None)
    assert all(text.startswith(f"key group 0: commit {hidden} and later ones are beyond") for text in found)


@pytest.fixture
def log() -> MemoryLog:
    """A log with three alerts, a duplicate, two dead letters, and one transaction without an alert."""
    world = World(threshold=0.5)
    world.profile("r", arrival=0)
    for amount in (900.0, 10.0, 600.0, 700.0):
        world.tx(0, amount)
    world.tx(0, 10.0, transaction_id="t1")
    world.raw_tx(b"{")
    world.tx(0, -1.0)
    return job_output(world)


def test_a_correct_job_is_clean(log):
    verdict = audit(log)
    assert counts(verdict) == (0, 0, 0, 0)
    assert verdict.problems == []
    assert verdict.is_clean
    report = verdict.report()
    assert {name: report[name] for name in ("events", "alerts", "dead_letters", "passed")} == {
        "events": 7, "alerts": 3, "dead_letters": 2, "passed": 1
    }  # fmt: skip
    assert report["repeated_transactions"] == 1


def test_missing_alert_is_found(log):
    del log.topics["fraud-alerts"][1]
    verdict = audit(log)
    assert counts(verdict) == (1, 0, 0, 0)
    assert "transactions[0]@2" in verdict.findings.examples[0]
    assert any("another digest" in problem for problem in verdict.problems)
    assert any("progress counts 3 alerts, 2 found" in problem for problem in verdict.problems)


def test_repeated_alert_is_found(log):
    log.topics["fraud-alerts"].append(log.topics["fraud-alerts"][0])
    assert counts(audit(log)) == (0, 1, 0, 0)


def test_foreign_alert_is_found(log):
    alerts = log.topics["fraud-alerts"]
    source = json.loads(alerts[0].value)["source"]
    alerts.append(changed(alerts[0], source={**source, "offset": 1}))
    assert counts(audit(log)) == (0, 0, 1, 0)


def test_a_second_alert_of_a_transaction_with_another_id_is_found(log):
    alerts = log.topics["fraud-alerts"]
    alerts.append(changed(alerts[0], alert_id="00000000-0000-0000-0000-000000000000"))
    assert counts(audit(log)) == (0, 1, 0, 0)


def test_same_transaction_sent_again_may_have_an_alert_of_the_same_id(log):
    first, *_ = log.topics["fraud-alerts"]
    findings = Findings()
    result = UncomparedRecords(findings)
    result.add("fraud_alerts", first)
    result.add("fraud_alerts", changed(first, source={**json.loads(first.value)["source"], "offset": 99}))
    assert findings == Findings()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("score", 0.9 + 2e-9),
        ("score", 0.9 + 1e-11),  # not rounded
        ("reasons", [{"feature": "amount", "value": 900.0, "contribution": 0.12345678912}]),
        ("threshold", 0.4),
        ("decision", "decline"),
        ("rules", ["score", "velocity_5m"]),
        ("suspicious_count", {"day": 2, "total": 1}),
        ("late", True),
        ("late", 0),
        ("amount", 900.0001),
        ("profile", None),
        ("reasons", []),
    ],
)
def test_changed_alert_is_one_missing_and_one_unexpected(log, field, value):
    alerts = log.topics["fraud-alerts"]
    alerts[0] = changed(alerts[0], **{field: value})
    verdict = audit(log)
    assert counts(verdict) == (1, 0, 1, 1)
    assert field in verdict.findings.examples[0]


def test_features_may_differ_in_the_last_bits_only(log):
    alerts = log.topics["fraud-alerts"]
    features = json.loads(alerts[0].value)["features"]
    alerts[0] = changed(alerts[0], features={**features, "amount": 900.0 * (1 + 1e-12)})
    assert counts(audit(log)) == (0, 0, 0, 0)
    alerts[0] = changed(alerts[0], features={**features, "amount": 900.0 * (1 + 1e-8)})
    assert counts(audit(log)) == (1, 0, 1, 1)


def test_unknown_fields_of_an_alert_are_tolerated(log):
    alerts = log.topics["fraud-alerts"]
    alerts[0] = changed(alerts[0], colour="red")
    assert counts(audit(log)) == (0, 0, 0, 0)


@pytest.mark.parametrize("topic", ["fraud-alerts", "dead-letters", "job-progress"])
@pytest.mark.parametrize("header", [(("release", b"0.2.0+0123abcd"),), (("release", b"0.1.0"),), ()])
def test_every_record_of_a_commit_names_the_release_of_its_progress_record(log, topic, header):
    records = log.topics[topic]
    records[0] = records[0]._replace(headers=(*HEADERS[:3], *header))
    assert any("headers of records name" in problem for problem in audit(log).problems)


def test_an_alert_names_the_release_of_its_header(log):
    alerts = log.topics["fraud-alerts"]
    alerts[0] = changed(alerts[0], release="0.2.0+0123abcd")
    verdict = audit(log)
    assert counts(verdict) == (1, 0, 1, 1)
    assert "release: '0.2.0+0123abcd'" in verdict.findings.examples[0]


def test_the_report_lists_the_releases_that_decided(log):
    assert audit(log).report()["releases"] == {RELEASE: 1}


def test_alert_under_another_key_differs(log):
    alerts = log.topics["fraud-alerts"]
    alerts[0] = alerts[0]._replace(key=b"other")
    verdict = audit(log)
    assert counts(verdict) == (1, 0, 1, 1)
    assert "the record's key: b'other' instead of b'" in verdict.findings.examples[0]


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda letters: letters.pop(), (1, 0, 0, 0)),
        (lambda letters: letters.append(letters[0]), (0, 1, 0, 0)),
        (lambda letters: letters.append(changed(letters[0], offset=1)), (0, 0, 1, 0)),
        (lambda letters: letters.insert(0, changed(letters.pop(0), reason="wrong_type")), (1, 0, 1, 1)),
        (lambda letters: letters.insert(0, changed(letters.pop(0), value_base64="YQ==")), (1, 0, 1, 1)),
        (lambda letters: letters.insert(0, changed(letters.pop(0), arrival_time=1)), (1, 0, 1, 1)),
        (lambda letters: letters.insert(0, letters.pop(0)._replace(key=None)), (1, 0, 1, 1)),
        (lambda letters: letters.insert(0, letters.pop(0)._replace(key=b"another")), (1, 0, 1, 1)),
        (lambda letters: letters.append(letters[0]._replace(value=b"no json")), (0, 0, 1, 0)),
    ],
)
def test_faults_of_dead_letters_are_found(
    log: MemoryLog, plant: Callable[[list[Record]], object], expected: tuple[int, int, int, int]
):
    plant(log.topics["dead-letters"])
    assert counts(audit(log)) == expected


@pytest.mark.parametrize("topic", ["fraud-alerts", "shadow-alerts", "dead-letters", "job-progress"])
def test_json_too_deep_to_be_parsed_is_a_finding(log: MemoryLog, topic: str) -> None:
    records = log.topics[topic]
    deep = Record(topic, 0, len(records), START, b"job", b"[" * 99_999, HEADERS)
    records.append(deep)
    verdict = audit(log)
    is_progress = topic == "job-progress"
    assert counts(verdict) == (0, 0, 0 if is_progress else 1, 0)
    assert any("not a progress record" in text for text in verdict.problems) == is_progress


def test_a_dead_letter_that_shows_a_card_number_is_found():
    world = World()
    world.tx(0, 10.0, card_id="4111111111111111")
    (right,) = job_output(world).topics["dead-letters"]
    assert json.loads(right.value)["reason"] == "card_number"
    encoded = base64.b64encode(world.transactions[0].value).decode()
    shown = changed(right, value_base64=encoded), right._replace(key=world.transactions[0].key)
    for letter, found in ((right, 0), *((letter, 1) for letter in shown)):
        log = job_output(world)
        log.topics["dead-letters"] = [letter]
        verdict = audit(log)
        assert counts(verdict) == (found, 0, found, found)
        assert all("shows the card number" in text for text in verdict.findings.examples)


@pytest.mark.parametrize(
    ("size", "sha256", "expected"),
    [
        (1, hashlib.sha256(b"{"), (0, 0, 0, 0)),
        (2, hashlib.sha256(b"{"), (1, 0, 1, 1)),
        (1, hashlib.sha256(b"["), (1, 0, 1, 1)),
    ],
)
def test_dead_letter_that_does_not_carry_its_record_tells_size_and_hash(log, size, sha256, expected):
    letters = log.topics["dead-letters"]
    letters[0] = changed(letters[0], value_base64=None, value_bytes=size, value_sha256=sha256.hexdigest())
    assert counts(audit(log)) == expected


def test_outputs_of_uncommitted_input_are_not_expected(log):
    log.group["transactions", 0] = 2  # two of the three alerts come from offset 2 on
    verdict = audit(log)
    assert counts(verdict) == (0, 0, 0, 0)
    assert verdict.events == 2


def test_dead_letters_of_a_table_are_expected_up_to_the_slowest_groups_position():
    """Profile 0 is valid, 1 and 2 are not. One group has read them all, the other one only the first two,
    so the dead letter of 2, in parentheses, is allowed but not expected yet.

    offset         0   1   2
    group 0        ------------->
    group 1        ------->
    dead letter        x   (x)
    """
    world = World(threshold=0.5)
    for card in "cde":
        world.profile("u", arrival=0, card=card, **({} if card == "c" else {"status": "lost"}))
    world.tx(0)
    log = job_output(world)
    (first,) = log.topics["job-progress"]
    second = changed(
        first,
        key_group=1,
        key_groups=2,
        counts={"dead_letters": 0, "late_table_changes": 0},
        partitions=[
            {"topic": "bank.public.card_profiles", "partition": 0, "start_offset": 0, "end_offset": 2}
        ],
    )
    log.topics["job-progress"] = [changed(first, key_groups=2), second]
    result = audit(log)
    assert counts(result) == (1, 0, 0, 0)
    assert "bank.public.card_profiles[0]@1: no dead letter invalid_value" in result.findings.examples[0]
    assert result.ends["bank.public.card_profiles", 0] == 2

    both = [
        letter_of(outcome, record) for outcome, record in zip(refused(world), world.profiles[1:], strict=True)
    ]
    log.topics["dead-letters"] = both
    account = json.loads(first.value)["counts"]
    log.topics["job-progress"][0] = changed(first, key_groups=2, counts={**account, "dead_letters": 2})
    result = audit(log)
    assert result.is_clean, result.report()
    assert result.dead_letters == {"invalid_value": 1}


def test_wrong_totals_are_reported(log):
    (record,) = log.topics["job-progress"]
    account = json.loads(record.value)["counts"]
    log.topics["job-progress"] = [changed(record, counts={**account, "duplicates": 0})]
    assert audit(log).problems == ["progress adds up to 0 duplicates, the oracle finds 1"]


def test_a_job_without_commits_cannot_be_audited(log):
    log.group.clear()
    with pytest.raises(VerifyError, match="committed no offsets"):
        audit(log)


@pytest.mark.parametrize("name", ["shadow-alerts", "suppressed-alerts", "dead-letters"])
def test_a_missing_output_topic_is_named(log, name):
    del log.topics[name]
    with pytest.raises(TopicReadError, match=name):
        audit(log)


@pytest.mark.parametrize("field", ["rollout_seq", "role", "membership", "policy", "challenger_failure"])
def test_an_alert_without_a_field_of_its_contract_is_found(log, field):
    alerts = log.topics["fraud-alerts"]
    content = json.loads(alerts[0].value)
    del content[field]
    alerts[0] = alerts[0]._replace(value=json.dumps(content).encode())
    assert counts(audit(log)) == (1, 0, 1, 1)


@pytest.mark.parametrize("field", ["digests", "trials"])
def test_a_progress_record_without_a_field_that_the_audit_needs_is_found(log, field):
    (record,) = log.topics["job-progress"]
    content = json.loads(record.value)
    del content[field]
    log.topics["job-progress"] = [record._replace(value=json.dumps(content).encode())]
    assert "job-progress[0] offset 0: not a progress record" in audit(log).problems


def test_the_audit_finds_those_profiles_unknown_that_compaction_may_have_removed() -> None:
    world = World(threshold=0.0)
    world.tx(0, 5.0)
    world.profile("u", HOUR)
    world.losses = Losses(profiles_before=START + DAY)
    log = job_output(world)
    assert counts(audit(log)) == (0, 0, 0, 0)
    world.losses = Losses(profiles_before=START)
    log.topics["job-progress"] = job_output(world).topics["job-progress"]
    assert sum(counts(audit(log))) > 0


def test_a_takeover_by_a_state_that_was_read_from_a_compacted_log_is_a_seam() -> None:
    """Of the takeovers 4, 7 and 9, only 7 is by a state of another beginning."""
    found = ProgressAudit(T, {("t", 0): 99, ("t", 1): 99})
    for commit_id, query, before, limit in (
        (3, "q", "", None), (4, "r", "q", None), (7, "s", "r", 500), (8, "s", "", 500), (9, "u", "s", 500)
    ):  # fmt: skip
        for group in (0, 1):
            record = progress(commit_id, group=group, spans=[("t", group, 10 * commit_id, 10 * commit_id)])
            fields: dict[str, object] = {"query_id": query}
            if commit_id > 3:
                begun = 7 if commit_id == 8 else commit_id
                fields["takeover"] = {"query_id": before, "commit_id": begun}
            if limit is not None and group == 0:
                fields[FIELD] = {"profiles_before": limit}
            found.add_progress(changed(record, **fields))
    assert found.seams == [Seam(0, {}), Seam(7, {("t", 0): 70, ("t", 1): 70}, losses=Losses(500))]
