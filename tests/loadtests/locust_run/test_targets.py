"""A cluster's topics are written to only if they are for load tests, or with --allow-production."""

import pytest

from loadtests.locust_run import targets
from loadtests.locust_run.errors import LoadTestError

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUD_BOOTSTRAP_SERVERS", "kafka:9092")
    for name in ("MLFLOW_TRACKING_URI", "CHECKPOINT", "WORK_DIR"):
        monkeypatch.setenv(f"FRAUD_{name}", "/as/the/job")


def test_topics_of_production_are_refused_unless_they_are_allowed() -> None:
    with pytest.raises(LoadTestError, match=r"transactions may be a production topic.*--allow-production"):
        targets.cluster(allow_production=False)
    allowed = targets.cluster(allow_production=True, sidecar="https://job:8000")
    assert (allowed.settings.topics.transactions, allowed.sidecar) == ("transactions", "https://job:8000")
    assert not allowed.own_topics


def test_a_topic_for_load_tests_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUD_TOPICS__TRANSACTIONS", "loadtest-transactions")
    assert targets.cluster(allow_production=False).settings.bootstrap_servers == "kafka:9092"
