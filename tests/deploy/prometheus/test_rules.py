"""The rules for Prometheus are complete, use exported metrics, and have entries in the runbook."""

import re
from pathlib import Path

import pytest
from harness.alert_cases import CASES
from harness.promql import VALUES, QueryError, check, exported
from harness.promtool import all_rules, needed, rule_of
from harness.tools import find, needs

from deploy.prometheus import CONFIG, RULES, absence

pytestmark = pytest.mark.unit
RULE_LIST = all_rules()
ALERTS = [rule for rule in RULE_LIST if "alert" in rule]
RUNBOOK = (Path(__file__).parents[3] / "docs" / "runbook.md").read_text()
ENTRIES = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))


def name(rule: dict) -> str:
    return rule.get("record") or "-".join([rule["alert"], *rule["labels"].values()])


def anchors(rule: dict) -> list[str]:
    """Entries of the runbook that an alert links to."""
    anchor = rule["annotations"]["runbook_url"].removeprefix("docs/runbook.md#")
    if anchor != "{{ $labels.code }}":
        return [anchor]
    (codes,) = re.findall(r'code=~"([^"]*)"', rule["expr"])
    return codes.split("|")


@pytest.mark.parametrize("rule", RULE_LIST, ids=name)
def test_each_rule_uses_exported_metrics_and_labels(rule):
    check(rule["expr"])


@pytest.mark.parametrize(
    "expression",
    [
        "fraud_lag_second",
        'fraud_partition_lag_seconds{parttion="1"}',
        "sum by (topik) (fraud_partition_lag_seconds)",
        'fraud_partition_verdict{fraud_partition_verdict=~"STOP|STOPPED"} == 1',
        "fraud_lag_seconds > on (topic) fraud_partition_lag_seconds",
        "histogram_quantile(0.5, sum by (job) (rate(fraud_score_bucket[5m])))",
        "fraud_event_to_alert_seconds",
    ],
)
def test_a_metric_that_is_not_exported_fails_the_check(expression):
    with pytest.raises(QueryError):
        check(expression)


@pytest.mark.parametrize("rule", ALERTS, ids=name)
def test_each_alert_has_a_severity_a_summary_and_a_link(rule):
    assert rule["labels"]["severity"] in ("page", "ticket")
    texts = rule["annotations"]
    assert sorted(texts) == ["description", "runbook_url", "summary"]
    assert texts["runbook_url"].startswith("docs/runbook.md#")
    assert set(anchors(rule)) <= set(ENTRIES)
    assert re.match(r"^[^{ ].*[^.]$|^\{\{", texts["summary"]), "a summary must not end with a full stop"


@pytest.mark.parametrize("rule", ALERTS, ids=name)
def test_the_text_of_an_alert_uses_only_labels_that_it_has(rule):
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert used <= check(rule["expr"]) | set(rule["labels"])


def test_the_runbook_entry_of_an_alert_names_it():
    for rule in ALERTS:
        for anchor in anchors(rule):
            assert f"`{rule['alert']}`" in ENTRIES[anchor], (rule["alert"], anchor)


def test_the_runbook_names_only_existing_alerts():
    alerts = {rule["alert"] for rule in ALERTS}
    named = set(re.findall(r"`(Fraud[A-Z]\w+)`", RUNBOOK)) - {"FraudError"}
    assert named == alerts


def test_the_absence_of_each_used_metric_has_an_alert():
    assert absence.FILE.read_text() == absence.text(), "stale: run `python -m deploy.prometheus.absence`"
    missed = {rule["labels"]["metric"] for rule in ALERTS if rule["alert"] == "FraudMetricAbsent"}
    seen: set[str] = set()
    for rule in RULE_LIST:
        if rule.get("alert") != "FraudMetricAbsent":
            seen |= {metric for metric in exported() if re.search(rf"(?<![:\w]){metric}\b", rule["expr"])}
    assert missed == seen - {"up"}
    assert set(absence.WITNESSES) <= missed


def test_each_alert_has_a_case_and_each_recorded_rule_an_alert():
    covered = [rule_of(case) for case in CASES]
    assert [name(rule) for rule in ALERTS if rule not in covered] == []
    used = [record for rule in ALERTS for record in needed(rule)]
    assert [rule["record"] for rule in RULE_LIST if "record" in rule and rule not in used] == []


def test_labels_of_known_values_are_exported():
    every = frozenset().union(*exported().values())
    assert set(VALUES) <= every


@needs("promtool")
def test_prometheus_accepts_configuration_and_rules():
    import subprocess

    for command in (
        ["config", CONFIG],
        ["rules", "--lint=all", "--lint-fatal", *sorted(RULES.glob("*.yml"))],
    ):
        ended = subprocess.run(
            [find("promtool"), "check", *map(str, command)], capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
