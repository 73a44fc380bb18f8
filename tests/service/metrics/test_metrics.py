"""The metrics as Prometheus reads them."""

import re
from pathlib import Path

import pytest
from harness.progress_records import progress
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from service.event_time import of_event_time

from service.health.lag import Lag, PartitionLag
from service.metrics import of_groups, of_lag, of_totals
from streaming_job.progress.totals import Totals

pytestmark = pytest.mark.unit
NOW = 1_700_000_011.15  # ten seconds after commit 2


class Fixed(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


class Scraped:
    """Samples by name and labels, after a trip through the text format."""

    def __init__(self, families: list[Metric]) -> None:
        registry = CollectorRegistry()
        registry.register(Fixed(families))
        text = generate_latest(registry).decode()
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))


@pytest.fixture
def totals() -> Totals:
    return Totals.from_json(progress(2)["totals"])


def test_counters_tell_what_has_added_up(totals: Totals) -> None:
    seen = Scraped(of_totals(totals))
    assert seen("fraud_transactions_total") == 200
    assert seen("fraud_alerts_total") == 6
    assert seen("fraud_alert_rules_total", rule="score") == 4
    assert seen("fraud_dead_letters_total", reason="too_late") == 2
    assert seen("fraud_duplicates_total") == 2
    assert seen("fraud_late_total") == 8
    assert seen("fraud_commits_total") == 2
    assert seen("fraud_phase_seconds_total", phase="transaction") == pytest.approx(0.04)
    assert seen("fraud_commit_interval_seconds_count") == 2
    assert seen("fraud_commit_interval_seconds_sum") == pytest.approx(0.3)


def test_the_latency_histogram_has_the_jobs_buckets(totals: Totals) -> None:
    seen = Scraped(of_totals(totals))
    name = "fraud_event_to_commit_seconds"
    assert seen(f"{name}_bucket", le="0.1") == 20
    assert seen(f"{name}_bucket", le="0.2") == 180
    assert seen(f"{name}_bucket", le="+Inf") == seen(f"{name}_count") == 200
    assert seen(f"{name}_sum") == pytest.approx(30.0)
    assert seen("fraud_event_lateness_seconds_sum") == pytest.approx(18.0)
    assert seen("fraud_profile_age_seconds_sum") == pytest.approx(180.0)
    assert seen("fraud_score_sum") == pytest.approx(15.0)


def test_the_totals_of_the_groups_are_added_up() -> None:
    groups = [Totals.from_json(progress(commits, group)["totals"]) for group, commits in enumerate((2, 3))]
    seen = Scraped(of_totals(Totals.of_groups(groups)))
    assert seen("fraud_commits_total") == 5
    assert seen("fraud_transactions_total") == 500
    assert seen("fraud_event_to_commit_seconds_bucket", le="0.1") == 50
    assert seen("fraud_dead_letters_total", reason="malformed_json") == 5


def test_gauges_tell_the_newest_commit_of_each_group() -> None:
    groups = {
        0: progress(2, 0, 3),
        1: progress(7, 1, 3, rollout_id="card-fraud-2", table_lag={"profiles": 40, "model-rollouts": 2}),
    }
    seen = Scraped(of_groups(groups, NOW))
    assert seen("fraud_key_groups") == 3
    assert [seen("fraud_group_commit_id", key_group=group) for group in "012"] == [2, 7, None]
    assert seen("fraud_group_epoch", key_group="1") == 0
    assert seen("fraud_group_progress_age_seconds", key_group="0") == pytest.approx(10.0)
    assert seen("fraud_group_progress_age_seconds", key_group="1") == pytest.approx(5.0)
    assert seen("fraud_group_commit_interval_seconds", key_group="0") == pytest.approx(0.15)
    assert seen("fraud_group_phase_seconds", key_group="0", phase="decide") == pytest.approx(0.08)
    assert [seen("fraud_group_table_lag_records", key_group=group) for group in "01"] == [0, 42]
    sizes = [seen(f"fraud_state_{name}") for name in ("cards", "cards_without_profile", "events", "bytes")]
    assert sizes == [100, 14, 800, 60_000]
    model = {"name": "card-fraud", "version": "1", "digest": "cd" * 32, "key_group": "0"}
    assert seen.samples["fraud_model_info", frozenset(model.items())] == 1
    assert seen("fraud_rollout_info", key_group="0", rollout_id="card-fraud-1") == 1
    assert seen("fraud_rollout_info", key_group="1", rollout_id="card-fraud-2") == 1
    assert seen("fraud_rollouts_set_aside", key_group="0") == 0
    assert seen("fraud_job_info", job_id="card-fraud", query_id="q1") == 1


def test_an_idle_partition_does_not_hold_back_the_watermark() -> None:
    """p0 is busy; p1 came to its end long ago; p2 too, but something waits there; p3 never had anything."""
    now = NOW * 1000
    parts = [
        {"event_time": 9_000, "watermark": 8_000, "active_at": now - 1_000},
        {"event_time": 3_000, "watermark": 2_000, "active_at": now - 90_000},
        {"event_time": 6_000, "watermark": 5_000, "active_at": now - 90_000},
        {"event_time": None, "watermark": None, "active_at": None},
    ]
    entries = [{"topic": "t", "partition": n, "end_offset": 0, **part} for n, part in enumerate(parts)]
    groups = {0: {"partitions": entries[::2]}, 1: {"partitions": entries[1::2]}}
    lag = Lag(NOW, tuple(PartitionLag("t", n, 0, 9, 4 if n == 2 else 9) for n in range(4)))
    seen = Scraped(of_event_time(groups, lag, NOW))
    idle = [seen("fraud_partition_idle", topic="t", partition=str(n)) for n in range(4)]
    assert idle == [0, 1, 0, 1]
    assert seen("fraud_watermark_seconds") == 5.0
    assert seen("fraud_partition_watermark_seconds", topic="t", partition="1") == 2.0
    assert seen("fraud_partition_event_time_seconds", topic="t", partition="0") == 9.0
    assert seen("fraud_partition_event_time_seconds", topic="t", partition="3") is None
    assert Scraped(of_event_time(groups, None, NOW + 90))("fraud_watermark_seconds") is None


def test_before_the_first_commit_there_is_nothing_to_tell() -> None:
    seen = Scraped(of_totals(Totals()))
    assert seen("fraud_transactions_total") == 0
    assert seen("fraud_event_to_commit_seconds_bucket", le="+Inf") == 0


def test_a_commit_without_model_and_rollout_is_told() -> None:
    names = {name for name, _ in Scraped(of_groups({0: progress(model=None, rollout_id=None)}, NOW)).samples}
    assert not names & {"fraud_model_info", "fraud_rollout_info"}


def test_lag_is_told_by_partition_and_in_all() -> None:
    lag = Lag(
        NOW,
        (
            PartitionLag("transactions", 0, 0, 10, 4, waiting_since_ms=1_700_000_001_150),
            PartitionLag("transactions", 1, 0, 7, None),
            PartitionLag("transactions", 2, 0, 9, 4, held_from=6, waiting_since_ms=1_700_000_006_150),
        ),
        feed_ms={"change": 1_700_000_000_150, "heartbeat": 1_700_000_012_000},
    )
    seen = Scraped(of_lag(lag, NOW))
    assert seen("fraud_partition_lag_records", topic="transactions", partition="0") == 6
    assert seen("fraud_partition_lag_seconds", topic="transactions", partition="0") == pytest.approx(10.0)
    assert seen("fraud_partition_end_offset", topic="transactions", partition="1") == 7
    assert seen("fraud_partition_committed_offset", topic="transactions", partition="1") is None
    assert seen("fraud_partition_lag_records", topic="transactions", partition="2") == 2
    assert seen("fraud_partition_held_records", topic="transactions", partition="2") == 3
    assert seen("fraud_partition_lag_seconds", topic="transactions", partition="2") == pytest.approx(5.0)
    assert seen("fraud_lag_records") == 15
    assert seen("fraud_held_records") == 3
    assert seen("fraud_lag_seconds") == pytest.approx(10.0)
    assert seen("fraud_profile_feed_age_seconds", signal="change") == pytest.approx(11.0)
    assert seen("fraud_profile_feed_age_seconds", signal="heartbeat") == 0.0  # clocks disagree


def test_the_documentation_lists_every_metric_and_no_other(totals: Totals) -> None:
    lag = Lag(NOW, (PartitionLag("transactions", 0, 0, 10, 4, waiting_since_ms=0),))
    groups = {0: progress(2, written_at=int(NOW * 1000))}
    told = of_totals(totals) + of_groups(groups, NOW) + of_event_time(groups, None, NOW) + of_lag(lag, NOW)
    suffix = {"counter": "_total", "info": "_info"}
    names = {family.name + suffix.get(family.type, "") for family in told}
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(fraud_\w+)`", page, re.MULTILINE))
    assert {name for name in documented if not name.startswith("fraud_sidecar_")} == names
