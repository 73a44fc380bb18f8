"""Game day: another producer duplicates a record of fraud-alerts; the continuous audit finds it."""

import json

from deploy.local.launch import FRAUD
from deploy.local.ports import HOST, free_port
from loadtests.faults.http_servers import running
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign
from streaming_job.log import clients
from streaming_job.log.clients import Address

BEHIND_S = 10


def _provoke(scene: Scene) -> None:
    port, installed = free_port(), scene.installed
    url = f"http://{HOST}:{port}/metrics"
    command = [
        *FRAUD, "verify", "--follow", "--share", "1", "--behind", str(BEHIND_S), "--metrics-port", str(port),
    ]  # fmt: skip
    log = installed.directory / "audit.log"
    scene.cleanup.enter_context(running(command, log, installed.environment(), url))
    scene.watchers.add_audit(f"{HOST}:{port}")
    topic = installed.topics.fraud_alerts
    alert = installed.read(topic)[-1]
    producer = clients.producer(Address(scene.stack.bootstrap_servers))
    producer.produce(topic, alert.value, alert.key, alert.partition, headers=list(alert.headers))
    producer.flush()
    scene.note(f"alert {json.loads(alert.value or b'')['alert_id']} is on the topic a second time")


def _mend(scene: Scene) -> None:
    verdict = scene.installed.verdict()
    scene.note(f"`fraud verify` names it: {'; '.join(verdict.findings.examples[:1])}")


DAY = Gameday(
    name="duplicates_seen",
    entries=("alerts_duplicated",),
    symptom="An alert is on the topic twice",
    provoked_by="an alert is copied to the end of fraud-alerts by hand, while `fraud verify --follow` runs",
    mended_by="`fraud verify` names the copy, which cannot be removed; consumers drop it by its alert_id",
    expected=Expected(
        signs=(Sign("fraud_audit_duplicated_total", grows=True),),
        firing=("FraudAlertsDuplicated",),
    ),
    provoke=_provoke,
    mend=_mend,
    findings={"duplicated": 1},
    # the copy has its original's headers, so the commit they name has one alert too many and another digest
    problems=2,
)
