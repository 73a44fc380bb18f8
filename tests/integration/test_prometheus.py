"""A real Prometheus with the shipped configuration: panels have data, no rule fails, no metric is missing."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from harness.live_page import served
from harness.tools import needs

from deploy.grafana import HOME
from deploy.grafana.answers import filled
from deploy.local.child import Child
from deploy.local.ports import free_port
from deploy.prometheus import server
from deploy.prometheus.absence import used

pytestmark = [
    pytest.mark.integration,
    pytest.mark.without_stack,
    needs("prometheus"),
]
PANELS = [
    (f"{path.stem}: {panel['title']}: {target['refId']}", target["expr"])
    for path in sorted(HOME.glob("*.json"))
    for panel in json.loads(path.read_text())["panels"]
    for target in panel.get("targets", [])
]
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask(tmp_path_factory) -> Iterator[Ask]:
    """Function that queries a Prometheus which scrapes the sidecar's metrics every second."""
    home = tmp_path_factory.mktemp("prometheus")
    page, port = free_port(), free_port()
    config = home / "prometheus.yml"
    server.write_config(config, f"127.0.0.1:{page}", scrape_s=1, evaluate_s=1)
    command = server.command(config, f"--storage.tsdb.path={home / 'data'}", f"127.0.0.1:{port}")

    def asked(path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    with served(page), Child("Prometheus", command, home / "log") as prometheus:
        yield asked
        prometheus.terminate(20)


@pytest.fixture(scope="module")
def grown(ask, wait_for) -> Ask:
    """`ask`, once rates have several scrapes and recorded series have their first values."""

    def has_grown() -> bool:
        with suppress(urllib.error.URLError, ConnectionError):
            scrapes = ask("query", query="count_over_time(up[5m])")["result"]
            return bool(scrapes) and int(scrapes[0]["value"][1]) >= 8
        return False

    wait_for(has_grown, deadline_s=90, what="eight scrapes")
    return ask


def test_no_rule_fails(grown):
    rules = [rule for group in grown("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 100
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


def test_the_sidecar_exports_each_metric_that_a_rule_uses(grown):
    """Except those of audit and archiver, which do not run here."""
    missed = {
        alert["metric"]["metric"]
        for alert in grown("query", query='ALERTS{alertname="FraudMetricAbsent"}')["result"]
    }
    assert missed == set()
    lacking = [metric for metric in used() if not grown("query", query=f"group({metric})")["result"]]
    assert [metric for metric in lacking if not metric.startswith(("fraud_audit_", "fraud_archive_"))] == []


@pytest.mark.parametrize("expression", [query for _, query in PANELS], ids=[name for name, _ in PANELS])
def test_each_panel_has_data(grown, expression):
    if "fraud_audit_" in expression:
        pytest.skip("the audit is a process of its own, which does not run here")
    plain = filled(expression, "card-fraud")
    result = grown("query", query=plain)["result"]
    assert result, plain
    assert not all(sample["value"][1] == "NaN" for sample in result), plain
