"""Observations of a game day, and their form in journal and page."""

from datetime import date

import pytest

from loadtests.gamedays import page
from loadtests.gamedays.catalogue import DAYS
from loadtests.gamedays.journal import Journal
from loadtests.gamedays.sight import FIRING, PENDING, Sign, rules_of, samples_of, sight_of

pytestmark = pytest.mark.unit
METRICS = """\
# TYPE fraud_lag_records gauge
fraud_lag_records 12.0
# TYPE fraud_dead_letters counter
fraud_dead_letters_total{reason="too_late"} 3.0
fraud_dead_letters_total{reason="missing_field"} 7.0
"""
READY = {"ready": True, "checks": [{"name": "broker", "ok": True}]}
OK = {"verdict": "OK", "reasons": []}


def test_a_sign_is_the_greatest_sample_or_the_growth_of_their_sum() -> None:
    now, before = samples_of(METRICS), samples_of(METRICS.replace("7.0", "5.0"))
    assert Sign("fraud_lag_records").value(now, before) == 12
    assert Sign("fraud_dead_letters_total").value(now, before) == 7
    assert Sign("fraud_dead_letters_total", grows=True).value(now, before) == 2
    assert Sign("fraud_dead_letters_total", labels={"reason": "too_late"}, grows=True).value(now, before) == 0
    assert Sign("fraud_dead_letters_total", grows=True).value(now, {}) == 10
    assert Sign("fraud_lag_seconds", above=-1).value(now, before) == float("-inf")
    assert str(Sign("a", 1, {"b": "c"})) == 'a{b="c"}'


def test_of_several_alerts_with_one_name_the_firing_one_counts() -> None:
    alerts = [
        {"labels": {"alertname": name}, "state": state}
        for name, state in (("A", PENDING), ("A", FIRING), ("A", PENDING), ("B", PENDING), ("C", "inactive"))
    ]
    assert rules_of(alerts) == {"A": FIRING, "B": PENDING}


def test_a_ready_job_with_verdict_ok_and_no_reasons_is_well() -> None:
    assert sight_of(OK, READY, METRICS, {"A": FIRING}).is_well
    assert not sight_of(OK | {"verdict": "WARN"}, READY, METRICS, {}).is_well
    assert not sight_of(OK, READY | {"ready": False}, METRICS, {}).is_well
    reasons = [{"code": "no_commits", "detail": "first"}, {"code": "no_commits", "detail": "second"}]
    seen = sight_of({"verdict": "OK", "reasons": reasons}, READY, METRICS, {})
    assert not seen.is_well
    assert seen.reasons == {"no_commits": "first"}


def test_checks_that_were_not_run_are_not_broken() -> None:
    checks = [{"name": "broker", "ok": False}, {"name": "job", "ok": None}, {"name": "topics", "ok": True}]
    assert sight_of(OK, {"ready": False, "checks": checks}, METRICS, {}).broken == {"broker"}


def test_a_journal_counts_seconds_from_its_beginning() -> None:
    times = iter([100.0, 150.0, 151.5, 160.0])
    lines: list[str] = []
    journal = Journal(lines.append, lambda: next(times))
    journal.add("done", "the job is\n  stopped")
    assert lines == ["   50.0 s  done     the job is stopped"]
    journal.begin()
    journal.add("status", "OK")
    assert journal.lines == ["    8.5 s  status   OK"]


def test_a_row_replaces_the_one_before() -> None:
    day = DAYS["transaction_hung"]
    lines = [
        "    0.0 s  done     seen nothing yet",
        "   93.7 s  seen     all that was expected",
        "   97.0 s  well     no rule is active",
        "  120.8 s  audit    12 transactions, 3 alerts: 0 missing",
    ]
    text = page.row(day, lines, date(2026, 11, 23), prometheus=False)
    assert text.startswith("| `transaction_hung` | ")
    assert text.endswith(
        " | 2026-11-23, 93.7, 97.0; 12 transactions, 3 alerts: 0 missing; without Prometheus, so no rule "
        "was evaluated |\n"
    )
    assert "no rule was" not in page.row(day, lines, date(2026, 11, 23), prometheus=True)
    empty = f"# Game days\n\n{page.COLUMNS}\nText.\n"
    once = page.put(empty, day.name, text)
    assert once == f"# Game days\n\n{page.COLUMNS}{text}\nText.\n"
    assert page.put(once, day.name, text) == once
    assert page.put(once, day.name, "| new |\n") == f"# Game days\n\n{page.COLUMNS}| new |\n\nText.\n"
