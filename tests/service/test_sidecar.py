"""The sidecar against a real broker: transactions, restarts, lag."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from harness.alert_records import alert
from harness.job_writer import Job
from harness.local_client import LocalClient
from harness.progress_records import progress
from harness.sidecar_process import samples_of

from deploy.local.stack import Endpoints
from service.app import create_app
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics
from streaming_job.log import follow

pytestmark = pytest.mark.integration


def topics_made(servers: str, topics: Topics) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    present = admin.list_topics(timeout=30).topics
    wanted = (topics.transactions, topics.profiles, topics.model_rollouts, topics.job_progress)
    result = admin.create_topics([NewTopic(name, 1, 1) for name in wanted if name not in present])
    for future in result.values():
        future.result(30)


@pytest.fixture
def job(stack: Endpoints, topic_names: Callable[[], Topics]) -> Job:
    topics = topic_names()
    # the profiles topic is shared with other tests, so another one is watched
    topics = topics.model_copy(update={"profiles": f"{topics.transactions}-profiles"})
    topics_made(stack.bootstrap_servers, topics)
    return Job(settings_of(stack.bootstrap_servers, topics))


def settings_of(servers: str, topics: Topics) -> ServiceSettings:
    return ServiceSettings(
        bootstrap_servers=servers, topics=topics, job_id=f"job-{topics.transactions}", offsets_interval_s=0.2
    )


@pytest.fixture
def sidecar(job: Job) -> Iterator[LocalClient]:
    with LocalClient(create_app(job.settings)) as client:
        yield client


def produce(servers: dict[str, str], topic: str, record: Any, partition: int = 0, key: str = "") -> None:
    producer = Producer(servers)  # a new one knows new partitions
    producer.produce(topic, json.dumps(record).encode(), key, partition)
    assert producer.flush(30) == 0


def samples(client: LocalClient) -> dict[str, float]:
    """Samples of `/metrics`; see `samples_of`."""
    return samples_of(client.get("/metrics").text)


def test_commits_are_counted_once_and_aborted_ones_never(
    job: Job, sidecar: LocalClient, wait_for: Any
) -> None:
    reason = "the job has not written progress yet; 0 records wait"
    wait_for(lambda: sidecar.get("/readyz").json()["reasons"] == [reason], what="no readiness without a job")
    assert sidecar.get("/v1/progress").status_code == 404
    job.write(1)
    job.write(2)
    job.write(3, written_at=int(time.time() * 1000))
    wait_for(lambda: samples(sidecar).get("fraud_group_commit_id{0}") == 3, what="the third commit")
    job.write(2)  # a duplicate, as a consumer may read one
    job.write(4, commit=False)
    job.producer.begin_transaction()
    other = json.dumps(progress(7, job_id="another")).encode()
    job.producer.produce(job.settings.topics.job_progress, other, key="another")
    for foreign in (b"no json", b"[]", json.dumps({"query_id": "q1", "commit_id": 9}).encode()):
        job.producer.produce(job.settings.topics.job_progress, foreign, key=job.settings.job_id)
    job.producer.commit_transaction(30)
    unreadable = "fraud_sidecar_progress_unreadable_total"
    wait_for(lambda: samples(sidecar)[unreadable] == 3, what="the last records")
    seen = samples(sidecar)
    assert seen["fraud_commits_total"] == 3
    assert seen["fraud_transactions_total"] == 300
    assert seen["fraud_event_to_alert_seconds_count"] == 300
    assert 0 <= seen["fraud_group_progress_age_seconds{0}"] < 30
    content = sidecar.get("/v1/progress").json()
    assert (content["key_groups"], content["groups"]["0"]["commit_id"]) == (1, 3)


def test_a_restarted_sidecar_exports_the_same_totals_of_all_groups(job: Job, wait_for: Any) -> None:
    """The newest record of an idle group is far before the end of the topic, where another group is busy."""
    now = int(time.time() * 1000)
    job.write(4, key_group=1, key_groups=2, written_at=now)
    for commit_id in range(1, 121):
        job.write(commit_id, key_groups=2, written_at=now)
    exported = []
    for _ in range(2):
        with LocalClient(create_app(job.settings)) as client:
            wait_for(lambda: client.get("/readyz").status_code == 200, what="readiness")
            exported.append(samples(client))
    assert exported[0]["fraud_transactions_total"] == 12_400
    assert exported[0]["fraud_group_commit_id{1}"] == 4
    # metrics of the moment, of the time since the start and of the process differ after a restart
    own = ("fraud_sidecar_", "process_", "python_", "fraud_limit", "fraud_verdict", "fraud_reason")
    own += ("fraud_partition_verdict", "fraud_group_epoch_start", "fraud_job_restarts")
    moving = {name for name in (*exported[0], *exported[1]) if "_age_seconds" in name or name.startswith(own)}
    assert {n: v for n, v in exported[0].items() if n not in moving} == {
        n: v for n, v in exported[1].items() if n not in moving
    }


def test_a_missing_group_is_named(job: Job, sidecar: LocalClient, wait_for: Any) -> None:
    job.write(1, key_groups=2, written_at=int(time.time() * 1000))
    reason = "key group 1 has not written progress yet"
    wait_for(lambda: sidecar.get("/readyz").json()["reasons"] == [reason], what="the reason")
    job.write(1, key_group=1, key_groups=2, written_at=int(time.time() * 1000))
    wait_for(lambda: sidecar.get("/readyz").status_code == 200, what="readiness")


def test_lag_is_the_distance_to_the_committed_offsets(job: Job, sidecar: LocalClient, wait_for: Any) -> None:
    job.feed(30)
    wait_for(lambda: samples(sidecar).get("fraud_lag_records") == 30, what="lag of the input")
    wait_for(lambda: samples(sidecar)["fraud_lag_seconds"] > 0, what="age of the input")
    reason = "the job has not written progress yet; 30 records wait"
    wait_for(lambda: sidecar.get("/readyz").json()["reasons"] == [reason], what="the reason")
    assert sidecar.get("/readyz").status_code == 503
    job.write(1, end=12, written_at=int(time.time() * 1000))
    wait_for(lambda: samples(sidecar)["fraud_lag_records"] == 18, what="lag after a commit")
    wait_for(lambda: sidecar.get("/readyz").status_code == 200, what="readiness of a job that commits")
    seen = samples(sidecar)
    assert seen[f"fraud_partition_committed_offset{{0,{job.settings.topics.transactions}}}"] == 12
    assert seen[f"fraud_partition_end_offset{{0,{job.settings.topics.transactions}}}"] == 30
    assert 0 < seen["fraud_lag_seconds"] < 60
    job.write(2, end=30, written_at=int(time.time() * 1000))
    wait_for(lambda: samples(sidecar)["fraud_lag_records"] == 0, what="no lag")
    assert samples(sidecar)["fraud_lag_seconds"] == 0


def test_an_open_transaction_is_distinguished_from_the_jobs_lag(
    job: Job, sidecar: LocalClient, wait_for: Any
) -> None:
    job.feed(5)
    job.write(1, end=5, written_at=int(time.time() * 1000))
    producer = Producer({"bootstrap.servers": job.settings.bootstrap_servers, "transactional.id": "hangs"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(job.settings.topics.transactions, b"{}", partition=0)
    assert producer.flush(30) == 0
    job.feed(2)  # behind the open transaction
    wait_for(lambda: samples(sidecar).get("fraud_held_records") == 5, what="what is held back")
    wait_for(lambda: samples(sidecar)["fraud_lag_seconds"] > 0.5, what="its age")
    assert samples(sidecar)["fraud_lag_records"] == 0
    producer.commit_transaction(30)
    wait_for(lambda: samples(sidecar)["fraud_held_records"] == 0, what="the end of the transaction")
    assert samples(sidecar)["fraud_lag_records"] == 6  # the transaction's marker has an offset, too


def hasty(job: Job) -> ServiceSettings:
    """Settings with limits of a second or less, and verdicts on the last 20 seconds."""
    quick = {"limit_floor_s": 0.5, "max_progress_age_s": 1.0, "idle_after_s": 1.0, "verdict_window_s": 20.0}
    return job.settings.model_copy(update=quick)


def test_each_verdict_is_reached_with_a_real_broker(job: Job, wait_for: Any) -> None:
    """The partition keeps up, is idle, read too slowly, stalled, stopped, idle, blocked, idle, rewound."""
    topic, commits = job.settings.topics.transactions, iter(range(1, 100_000))

    last, moved_ms = 0, 0

    def commit(end: int) -> None:
        """Commit like the job: write progress up to `end`, with the time at which `end` last changed."""
        nonlocal last, moved_ms
        now = int(time.time() * 1000)
        last, moved_ms = end, moved_ms if end == last else now
        parts = [entry for entry in progress(1)["partitions"] if entry["topic"] == "transactions"]
        mine = {"topic": topic, "start_offset": 0, "end_offset": end, "active_at": moved_ms}
        job.write(next(commits), end=end, written_at=now, partitions=[{**parts[0], **mine}])

    with LocalClient(create_app(hasty(job))) as client:

        def current() -> dict[str, Any]:
            inputs = client.get("/v1/status").json()["inputs"]
            return next((entry for entry in inputs if entry["topic"] == topic), {})

        def until(code: str, doing: Callable[[], object] = lambda: None) -> dict[str, Any]:
            wait_for(lambda: doing() or current().get("code") == code, what=code)
            return current()

        end = position = 0

        def at_once() -> None:
            nonlocal end, position
            job.feed(5)
            end = position = end + 5
            commit(end)

        assert until("keeping_up", at_once)["verdict"] == "OK"
        assert until("idle")["verdict"] == "IDLE"

        def too_slowly() -> None:
            nonlocal end, position
            job.feed(3)
            end, position = end + 3, position + 1
            commit(position)

        assert until("falling_behind", too_slowly)["verdict"] == "WARN"
        stalled = until("not_moving", lambda: commit(position))
        assert (stalled["verdict"], stalled["lag_records"]) == ("STALL", end - position)
        stopped = until("no_commits")
        assert stopped["verdict"] == "STOP"
        assert stopped["since"] <= time.time() - 0.5
        assert stopped["runbook"] == "docs/runbook.md#no_commits"
        status = client.get("/v1/status").json()
        assert status["verdict"] == "STOP"
        assert "no_commits" in [reason["code"] for reason in status["reasons"]]
        assert until("idle", lambda: commit(end))["lag_records"] == 0

        servers = {"bootstrap.servers": job.settings.bootstrap_servers}
        producer = Producer({**servers, "transactional.id": f"hangs-{topic}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"{}", partition=0)
        assert producer.flush(30) == 0
        held = until("open_transaction", lambda: commit(end))
        assert (held["verdict"], held["held"], held["lag_records"]) == ("BLOCKED", 1, 0)
        producer.abort_transaction(30)
        until("idle", lambda: commit(end + 2))

        assert until("position_went_back", lambda: commit(3))["verdict"] == "REWIND"
        states = {name for name, value in samples(client).items() if value == 1 and topic in name}
        assert any(name.startswith("fraud_partition_verdict{") and "REWIND" in name for name in states)


def test_what_stands_still_or_fails_turns_the_verdict(job: Job, wait_for: Any) -> None:
    """An open transaction on labels, dead letters of one input, a failing model, foreign merchant facts."""
    topics, commits = job.settings.topics, iter(range(1, 100_000))
    servers = {"bootstrap.servers": job.settings.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(topics.labels, 1, 1)])[topics.labels].result(30)
    read = {"partition": 0, "start_offset": 0, "event_time": None, "max_event_time": None, "watermark": None}
    letters, failures, foreign, labelled = 0, 0, 0, 0

    def commit() -> None:
        """Commit like an idle job with merchant facts, which has read `labelled` labels."""
        now = int(time.time() * 1000)
        parts = [
            {**read, "topic": topic, "end_offset": end, "active_at": now}
            for topic, end in ((topics.transactions, 0), (topics.labels, labelled))
        ]
        counts = {"profile_changes": 10, "scoring_failures": failures, "foreign_facts": foreign}
        counts = {**progress(1)["counts"], "transactions": 10, **counts}
        by_topic = {"dead_letters_by_topic": {topics.profiles: letters, topics.transactions: 1}}
        job.write(next(commits), written_at=now, partitions=parts, counts=counts, **by_topic)

    with LocalClient(create_app(hasty(job))) as client:

        def status() -> dict[str, Any]:
            content: dict[str, Any] = client.get("/v1/status").json()
            return content

        def has(code: str) -> bool:
            commit()
            return code in [reason["code"] for reason in status()["reasons"]]

        wait_for(lambda: has("nothing") or status()["verdict"] in ("OK", "IDLE"), what="a fine verdict")
        producer = Producer({**servers, "transactional.id": f"hangs-{topics.labels}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topics.labels, b"{}", partition=0)
        assert producer.flush(30) == 0
        wait_for(lambda: has("open_transaction"), what="the open transaction on labels")
        assert status()["verdict"] == "BLOCKED"
        assert [p["held"] for p in status()["inputs"] if p["topic"] == topics.labels] == [1]
        producer.abort_transaction(30)
        labelled = 2
        wait_for(lambda: not has("open_transaction"), what="the end of the transaction")
        letters, failures, foreign = 30, 9, 1
        for code in ("mostly_dead_letters", "model_fails", "foreign_facts"):
            wait_for(lambda code=code: has(code), what=code)
        assert status()["verdict"] == "WARN"
        details = [reason["detail"] for reason in status()["reasons"]]
        assert any(detail.startswith("profiles: ") for detail in details)
        assert not any(detail.startswith("transactions: ") for detail in details)
        states = {part["name"]: part["state"] for part in status()["parts"]}
        assert (states["inputs"], states["model"], states["feed"]) == ("bad", "bad", "unknown")


def test_partitions_that_are_added_are_read_without_a_restart(
    job: Job, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "NEW_PARTITIONS_S", 0.2)
    servers, topics = {"bootstrap.servers": job.settings.bootstrap_servers}, job.settings.topics
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(topics.fraud_alerts, 1, 1)])[topics.fraud_alerts].result(30)
    with LocalClient(create_app(job.settings)) as client:
        job.write(1)
        produce(servers, topics.fraud_alerts, alert(1, 100))
        wait_for(lambda: samples(client).get("fraud_commits_total") == 1, what="the first commit")
        wait_for(lambda: len(client.get("/v1/alerts").json()["alerts"]) == 1, what="the first alert")
        for added in admin.create_partitions(
            [NewPartitions(topic, 2) for topic in (topics.job_progress, topics.fraud_alerts)]
        ).values():
            added.result(30)
        commit = progress(2, job_id=job.settings.job_id)
        produce(servers, topics.job_progress, commit, partition=1, key=job.settings.job_id)
        produce(servers, topics.fraud_alerts, alert(2, 100), partition=1)
        wait_for(lambda: samples(client)["fraud_commits_total"] == 2, what="the second commit")
        wait_for(lambda: len(client.get("/v1/alerts").json()["alerts"]) == 2, what="the second alert")


def test_a_new_instance_is_counted(job: Job, wait_for: Any) -> None:
    job.feed(2)
    position = f"fraud_partition_committed_offset{{0,{job.settings.topics.transactions}}}"
    with LocalClient(create_app(job.settings)) as client:

        def has_counted(number: int) -> bool:
            seen = samples(client)
            return (seen.get(position), seen.get("fraud_job_restarts_total")) == (number, number - 1)

        for number, instance in enumerate(("first", "second"), start=1):
            job.write(number, end=number, owner=f"{instance}/x", written_at=int(time.time() * 1000))
            wait_for(lambda number=number: has_counted(number), what=f"the {instance} instance")


def test_the_feeds_newest_records_and_heartbeats_are_exported(
    job: Job, sidecar: LocalClient, wait_for: Any
) -> None:
    wait_for(lambda: "fraud_lag_records" in samples(sidecar), what="the first look")
    assert not [name for name in samples(sidecar) if name.startswith("fraud_profile_feed")]
    servers = {"bootstrap.servers": job.settings.bootstrap_servers}
    heartbeats = job.settings.topics.heartbeats
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(heartbeats, 1, 1)])[heartbeats].result(30)
    now, producer = time.time(), Producer(servers)
    for topic, age_s in (
        (job.settings.topics.profiles, 100),
        (job.settings.topics.profiles, 500),
        (heartbeats, 7),
    ):
        producer.produce(topic, b"{}", timestamp=int((now - age_s) * 1000))
    assert producer.flush(30) == 0
    names = [f"fraud_profile_feed_age_seconds{{{signal}}}" for signal in ("change", "heartbeat")]
    wait_for(lambda: set(names) <= set(samples(sidecar)), what="both signals")
    ages = [samples(sidecar)[name] for name in names]
    assert 100 <= ages[0] < 500
    assert 7 <= ages[1] < 100


def test_a_sidecar_that_starts_before_its_topics_finds_them(
    stack: Endpoints, topic_names: Callable[[], Topics], wait_for: Any
) -> None:
    topics = topic_names()
    topics = topics.model_copy(update={"profiles": f"{topics.transactions}-profiles"})
    settings = settings_of(stack.bootstrap_servers, topics)
    with LocalClient(create_app(settings)) as client:
        missing = f"topic {topics.job_progress} does not exist"
        wait_for(lambda: missing in client.get("/readyz").json()["reasons"], what="the reason")
        topics_made(stack.bootstrap_servers, topics)
        Job(settings).write(1, written_at=int(time.time() * 1000))
        wait_for(lambda: samples(client).get("fraud_commits_total") == 1, what="the first commit")
        wait_for(lambda: client.get("/readyz").status_code == 200, what="readiness")
