"""The continuing audit's findings raise paging alerts: tested only in thorough test runs.

In every test run, test_audited_load.py tests the audit without alerts.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from harness.followed_audit import alerts_of, copied_without_the_third, followed, write
from harness.tools import needs
from thoroughness import only_thorough

from deploy.local.ports import HOST, free_port
from deploy.local.stack import Endpoints
from deploy.prometheus import server
from loadtests.audit import endless
from loadtests.faults.http_servers import get, running
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import JobProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
WaitFor = Callable[..., object]
FOUND_WITHIN_S = 120.0


@contextmanager
def scraping(directory: Path, audit: str) -> Iterator[Callable[[], set[str]]]:
    """Run Prometheus with the project's rules on an audit; yield a function that names its firing pages."""
    targets, config, listen = directory / "audit.json", directory / "prometheus.yml", f"{HOST}:{free_port()}"
    targets.write_text(json.dumps([{"targets": [audit]}]))
    server.write_config(config, f"{HOST}:{free_port()}", audit=targets)  # no sidecar listens there
    command = server.command(config, f"--storage.tsdb.path={directory / 'data'}", listen)

    def pages() -> set[str]:
        alerts = json.loads(get(f"http://{listen}/api/v1/alerts"))["data"]["alerts"]
        paging = [
            alert for alert in alerts if alert["state"] == "firing" and alert["labels"]["severity"] == "page"
        ]
        return {
            alert["labels"]["alertname"] for alert in paging if alert["labels"]["job"] == "card-fraud-audit"
        }

    with running(command, directory / "prometheus.log", {}, f"http://{listen}/-/ready"):
        yield pages


@only_thorough
@needs("prometheus")
def test_a_lost_and_a_doubled_alert_page_within_two_minutes(
    stack: Endpoints, installed: Installation, warm_job: JobProcess, wait_for: WaitFor, tmp_path: Path
) -> None:
    """With the defaults: the audit is a minute behind, scrapes are 5 s apart, rule evaluations 15 s."""
    copied = copied_without_the_third(stack, installed, "paged")
    plan = endless.EndlessOptions(share=1.0, metrics_port=0)
    with followed(copied, plan) as address, scraping(tmp_path, urlsplit(address).netloc) as pages:
        wait_for(
            lambda: "FraudAlertsMissing" in pages(), deadline_s=FOUND_WITHIN_S, what="the lost alert's page"
        )
        write(stack, copied.topics.fraud_alerts, [alerts_of(copied)[5]])
        wait_for(
            lambda: "FraudAlertsDuplicated" in pages(),
            deadline_s=FOUND_WITHIN_S,
            what="the doubled alert's page",
        )
        assert pages() == {"FraudAlertsMissing", "FraudAlertsDuplicated"}
