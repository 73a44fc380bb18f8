"""Rules that look back see the series of an earlier pod: the ServiceMonitor drops its name."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from harness.manifests import HOME, read
from harness.promtool import Case, Slope, rule_of, samples
from harness.tools import find, needs

pytestmark = pytest.mark.unit
REPLACED_AT, END = 1_500, 1_560
"""Minutes: the pod is replaced more than a day after the beginning, and an hour after the last record."""


MONITORS = {item["metadata"]["name"]: item for item in read(HOME / "monitoring" / "monitor.yaml")}


def scraped(pod: str, address: str, monitor: str = "sidecar") -> dict[str, str]:
    """Labels of a pod's series: those of the operator, after the ServiceMonitor's relabelings."""
    labels = {"job": "card-fraud", "instance": address, "pod": pod, "namespace": "card-fraud"}
    (endpoint,) = MONITORS[monitor]["spec"]["endpoints"]
    for step in endpoint.get("relabelings", []):
        if step["action"] == "labeldrop":
            labels = {name: value for name, value in labels.items() if not re.fullmatch(step["regex"], name)}
        else:
            assert step.keys() == {"action", "targetLabel", "replacement"}
            labels[step["targetLabel"]] = step["replacement"]
    return labels


OLD, NEW = scraped("sidecar-7d9c-x2x", "10.0.0.5:8000"), scraped("sidecar-7d9c-k8q", "10.0.0.9:8000")


@pytest.mark.parametrize("monitor", MONITORS)
def test_the_series_of_a_new_pod_have_the_labels_of_the_old_one(monitor: str) -> None:
    old, new = scraped("a", "10.0.0.5:8000", monitor), scraped("b", "10.0.0.9:8000", monitor)
    assert old == new
    assert old["instance"].startswith(f"{monitor}:")


@needs("promtool")
def test_an_alert_that_compares_with_yesterday_fires_after_the_pod_was_replaced(tmp_path: Path) -> None:
    rule = rule_of(Case("FraudInputQuiet", {}, {}, 0, 0))
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "tested", "rules": [rule]}]}))
    gone = END - REPLACED_AT
    records = samples([(REPLACED_AT - 60, Slope(100)), (END - REPLACED_AT + 60, Slope(0))], 60).split()
    series = {}
    for labels, of_pod in (
        (OLD, [*records[:REPLACED_AT], *["_"] * gone]),
        (NEW, [*["_"] * REPLACED_AT, *records[REPLACED_AT:]]),
    ):
        matchers = (f'{key}="{value}"' for key, value in {**labels, "input": "transactions"}.items())
        name = "fraud_input_records_total{" + ",".join(matchers) + "}"
        both = zip(series.get(name, ["_"] * END), of_pod, strict=True)
        series[name] = [old if new == "_" else new for old, new in both]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": " ".join(values)} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count(ALERTS{alertname="FraudInputQuiet", alertstate="firing"})',
                "eval_time": f"{END - 1}m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document, width=10_000_000))
    command = [find("promtool"), "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
