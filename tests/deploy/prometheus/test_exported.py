"""The table of metrics, against which rules and panels are checked, is what the sidecar exports."""

import re

import pytest
from harness.live_page import LivePage
from harness.promql import TARGET, exported
from harness.promtool import all_rules

from service.metrics.of_totals import of_totals
from streaming_job.contracts.topics import Topics
from streaming_job.progress.totals import Totals

pytestmark = pytest.mark.unit
NOT_HERE = {"up", "ALERTS"}


def test_labels_of_the_table_are_those_that_are_exported() -> None:
    samples = [sample for family in LivePage().collect() for sample in family.samples]
    seen = {sample.name: set(sample.labels) for sample in samples}
    assert len(seen) > 80
    listed = exported()
    assert {name: labels for name, labels in seen.items() if labels != set(listed[name] - TARGET)} == {}
    missing = set(listed) - set(seen) - NOT_HERE
    other_sources = ("fraud_audit_", "fraud_archive_", "fraud_sidecar_http_", "process_")
    assert [name for name in sorted(missing) if not name.startswith(other_sources)] == []


def test_a_reason_of_which_one_dead_letter_alerts_is_exported_before_the_first() -> None:
    pattern = re.compile(r'increase\(fraud_dead_letters_total\{reason=~?"([^"]*)"')
    alarming = {
        reason
        for rule in all_rules()
        for found in pattern.findall(rule["expr"])
        for reason in found.split("|")
    }
    (family,) = (each for each in of_totals(Totals(), Topics()) if each.name == "fraud_dead_letters")
    assert {sample.labels["reason"]: sample.value for sample in family.samples} == dict.fromkeys(alarming, 0)
