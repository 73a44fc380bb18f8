"""The table of metrics, against which rules and panels are checked, is what the sidecar exports."""

import pytest
from harness.live_page import LivePage
from harness.promql import TARGET, exported

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
