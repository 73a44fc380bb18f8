"""The sidecar's process: signals, a port in use, and brokers that do not answer or are killed."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from harness.job_writer import Job
from harness.local_client import LocalClient
from harness.sidecar_process import SidecarProcess, samples_of

from deploy.local import stack as embedded
from deploy.local.launch import FRAUD
from service.app import create_app
from service.settings import ServiceSettings

pytestmark = [pytest.mark.integration, pytest.mark.without_stack]


def test_the_process_serves_without_a_broker_and_stops_cleanly(wait_for: Any) -> None:
    with SidecarProcess("--bootstrap-servers", "127.0.0.1:1") as sidecar:
        assert sidecar.get("healthz") == (200, '{"status":"ok"}')
        status, body = sidecar.get("readyz")
        assert status == 503
        assert "progress records have not been read yet" in body
        wait_for(lambda: "does not answer" in sidecar.get("readyz")[1], what="the broker's fault")
        assert "fraud_sidecar_broker_up 0.0" in sidecar.get("metrics")[1]
        assert "/page/page.js" in sidecar.get("")[1]
        assert json.loads(sidecar.get("v1/caller")[1])["role"] == "admin"
        assert sidecar.stop(signal.SIGTERM) == (0, "", "")


def test_a_port_in_use_is_reported_in_one_line() -> None:
    with SidecarProcess("--bootstrap-servers", "127.0.0.1:1") as first:
        port = first.url.rsplit(":", 1)[1].strip("/")
        command = ["serve", "--bootstrap-servers", "127.0.0.1:1", "--port", port]
        second = subprocess.run([*FRAUD, *command], capture_output=True, text=True, timeout=60)
        assert first.stop(signal.SIGINT) == (0, "", "")
    assert second.returncode == 1
    assert f"port {port} is taken" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1


@pytest.mark.chaos
def test_the_sidecar_survives_a_killed_broker_and_continues_to_count(tmp_path: Path, wait_for: Any) -> None:
    servers = embedded.up(tmp_path, services=("kafka",)).bootstrap_servers
    try:
        settings = ServiceSettings(bootstrap_servers=servers, offsets_interval_s=0.2)
        Job(settings).write(1, written_at=int(time.time() * 1000))
        with LocalClient(create_app(settings)) as client:
            wait_for(lambda: client.get("/readyz").status_code == 200, what="readiness")
            embedded.kill(tmp_path, "kafka")
            wait_for(lambda: client.get("/readyz").status_code == 503, what="the broker's fault")
            assert client.get("/healthz").status_code == 200
            assert samples_of(client.get("/metrics").text)["fraud_transactions_total"] == 100
            assert embedded.up(tmp_path, services=("kafka",)).bootstrap_servers == servers
            Job(settings).write(2, written_at=int(time.time() * 1000))
            wait_for(
                lambda: samples_of(client.get("/metrics").text)["fraud_transactions_total"] == 200,
                what="the next commit",
            )
            wait_for(lambda: client.get("/readyz").status_code == 200, what="readiness again")
    finally:
        embedded.down(tmp_path)
