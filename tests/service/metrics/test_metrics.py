"""The metrics as Prometheus reads them."""

import re
from dataclasses import replace
from typing import Any

import pytest
from harness.local_client import LocalClient
from harness.progress_records import progress
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from models.guards.counts import Labelled
from service.app import create_app
from service.health.codes import Verdict
from service.health.diagnosis import Diagnosis, Reason
from service.health.event_time import event_times
from service.health.job_watch import View
from service.health.lag import Lag, PartitionLag
from service.health.monitor import Monitor
from service.health.readiness import NAMES, Check
from service.metrics.collector import of_view
from service.metrics.of_groups import of_groups
from service.metrics.of_inputs import of_event_time, of_lag
from service.metrics.of_quality import of_quality
from service.metrics.of_rollouts import of_guards, of_labelled, of_rollouts
from service.metrics.of_totals import of_totals
from service.quality.counts import Quality
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics
from streaming_job.progress.totals import Totals

pytestmark = pytest.mark.unit
NOW = 1_700_000_011.15  # ten seconds after commit 2


class Fixed(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


class Scraped:
    """Samples by name and labels, parsed from the text format."""

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


def test_counters_have_the_totals(totals: Totals) -> None:
    seen = Scraped(of_totals(totals, Topics()))
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
    seen = Scraped(of_totals(totals, Topics()))
    name = "fraud_event_to_alert_seconds"
    assert seen(f"{name}_bucket", le="0.1") == 20
    assert seen(f"{name}_bucket", le="0.2") == 180
    assert seen(f"{name}_bucket", le="+Inf") == seen(f"{name}_count") == 200
    assert seen(f"{name}_sum") == pytest.approx(30.0)
    assert seen("fraud_event_lateness_seconds_sum") == pytest.approx(18.0)
    assert seen("fraud_profile_age_seconds_sum") == pytest.approx(180.0)
    assert seen("fraud_score_sum") == pytest.approx(15.0)


def test_totals_are_the_sums_over_the_groups() -> None:
    groups = [Totals.from_json(progress(commits, group)["totals"]) for group, commits in enumerate((2, 3))]
    seen = Scraped(of_totals(Totals.of_groups(groups), Topics()))
    assert seen("fraud_commits_total") == 5
    assert seen("fraud_transactions_total") == 500
    assert seen("fraud_event_to_alert_seconds_bucket", le="0.1") == 50
    assert seen("fraud_dead_letters_total", reason="malformed_json") == 5


def test_gauges_show_the_newest_commit_of_each_group() -> None:
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
    assert seen("fraud_job_info", job_id="card-fraud", query_id="q1", release="0.1.0+0123abcd") == 1


def test_rollouts_set_aside_count_until_one_can_be_used() -> None:
    aside = {str(offset): "model_refused" for offset in (3, 7, 8)}
    applied = {"rollout_id": "r", "seq": 1, "type": "proposed", "held_from": {}}
    groups = {
        group: progress(1, group, 4, rollouts_set_aside=aside, applied=[{**applied, "offset": offset}])
        for group, offset in enumerate((2, 5, 9))
    }
    # group 3: no event was applied yet
    groups[3] = progress(1, 3, 4, rollouts_set_aside=aside)
    seen = Scraped(of_groups(groups, NOW))
    assert [seen("fraud_rollouts_set_aside", key_group=str(group)) for group in range(4)] == [3, 2, 0, 3]


def test_an_idle_partition_does_not_hold_back_the_watermark() -> None:
    """p0 is busy; p1 was last active long ago; p2, too, but records wait there; p3 never had a record."""
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
    seen = Scraped(of_event_time(event_times(groups, lag, NOW), NOW))
    idle = [seen("fraud_partition_idle", topic="t", partition=str(n)) for n in range(4)]
    assert idle == [0, 1, 0, 1]
    assert seen("fraud_watermark_timestamp_seconds") == 5.0
    assert seen("fraud_watermark_age_seconds") == pytest.approx(NOW - 5.0)
    assert seen("fraud_partition_watermark_timestamp_seconds", topic="t", partition="1") == 2.0
    assert seen("fraud_partition_event_time_timestamp_seconds", topic="t", partition="0") == 9.0
    assert seen("fraud_partition_event_time_timestamp_seconds", topic="t", partition="3") is None
    assert (
        Scraped(of_event_time(event_times(groups, None, NOW + 90), NOW))("fraud_watermark_timestamp_seconds")
        is None
    )


def test_before_the_first_commit_every_total_is_zero() -> None:
    seen = Scraped(of_totals(Totals(), Topics()))
    assert set(seen.samples.values()) == {0}
    assert seen("fraud_transactions_total") == 0
    assert seen("fraud_event_to_alert_seconds_bucket", le="+Inf") == 0


def test_totals_that_are_not_read_yet_are_not_called_zero() -> None:
    """The brokers are away at the sidecar's start; Prometheus would take what is read later for growth."""
    unread = replace(everything(), groups={}, totals=Totals(), assessment=None, progress_is_complete=False)
    names = {family.name for family in of_view(unread, SETTINGS)}
    assert not names & {family.name for family in of_totals(Totals(), Topics())}
    assert Scraped(list(of_view(unread, SETTINGS)))("fraud_sidecar_progress_complete") == 0
    new_job = replace(unread, progress_is_complete=True)
    assert Scraped(list(of_view(new_job, SETTINGS)))("fraud_transactions_total") == 0
    brokers_away = replace(everything(), progress_is_complete=False)
    assert Scraped(list(of_view(brokers_away, SETTINGS)))("fraud_transactions_total") == 200


def test_a_commit_without_model_and_rollout_is_exported() -> None:
    names = {name for name, _ in Scraped(of_groups({0: progress(model=None, rollout_id=None)}, NOW)).samples}
    assert not names & {"fraud_model_info", "fraud_rollout_info"}


def test_lag_is_exported_by_partition_and_in_total() -> None:
    lag = Lag(
        NOW,
        (
            PartitionLag("transactions", 0, 0, 10, 4, waiting_since_ms=1_700_000_001_150),
            PartitionLag("transactions", 1, 0, 7, None),
            PartitionLag("transactions", 2, 0, 9, 4, held_from=6, waiting_since_ms=1_700_000_006_150),
            PartitionLag("transactions", 3, 0, 6, 10),
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
    assert seen("fraud_partition_lost_records", topic="transactions", partition="3") == 4
    assert seen("fraud_lost_records") == 4
    assert seen("fraud_lag_seconds") == pytest.approx(10.0)
    assert seen("fraud_profile_feed_age_seconds", signal="change") == pytest.approx(11.0)
    assert seen("fraud_profile_feed_age_seconds", signal="heartbeat") == 0.0  # not negative if clocks differ


SETTINGS = ServiceSettings(bootstrap_servers="127.0.0.1:1")


def everything() -> View:
    """A view with progress, lag, a reason and a rollout in shadow, but without counts of its trial."""
    of_partition = PartitionLag("transactions", 0, 0, 10, 4, waiting_since_ms=0)
    lag = Lag(NOW, (of_partition,), feed_ms={"heartbeat": int(NOW * 1000)})
    groups = {0: progress(2, written_at=int(NOW * 1000), **trial_of("r1"))}
    totals = Totals.from_json(groups[0]["totals"])
    monitor = Monitor(SETTINGS)
    monitor.see(lag, groups, totals)
    checks = tuple(Check(name, code) for name, code in NAMES.items())
    diagnosis = Diagnosis(Verdict.WARN, (Reason("feed_silent", "...", 5.0),))
    return View(NOW, checks, groups, lag, monitor.assessment, diagnosis, totals, True, True, 0)


def test_of_too_many_groups_those_in_force_and_the_largest_are_exported() -> None:
    result = [Quality("rollout", f"r{number:02}", 0, 0, number, newest=5) for number in range(60)]
    new = Quality("rollout", "new", 0, 0, 1, newest=6)
    (family,) = of_quality([*result, new])
    assert {sample.labels["name"] for sample in family.samples} == {
        "new", *(f"r{number:02}" for number in range(11, 60))
    }  # fmt: skip
    assert len(family.samples) == 150


def test_each_time_has_an_age_beside_it_or_in_its_name() -> None:
    names = {family.name for family in of_view(everything(), SETTINGS)}
    moments = {name for name in names if name.endswith("_timestamp_seconds")}
    ages = {name.replace("_timestamp_", "_age_").replace("_start_age", "_age") for name in moments}
    without = {name for name in ages - names if "_since_" not in name}
    assert not without


def test_every_family_is_valid_and_unique() -> None:
    names = [family.name for family in of_view(everything(), SETTINGS)]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"fraud_[a-z0-9_]+", name) for name in names)
    seen = Scraped(list(of_view(everything(), SETTINGS)))
    verdicts = {
        dict(labels)["fraud_partition_verdict"]: value
        for (name, labels), value in seen.samples.items()
        if name == "fraud_partition_verdict"
    }
    assert sum(verdicts.values()) == 1
    assert set(verdicts) == set(Verdict) - {"UNKNOWN"}
    assert seen("fraud_reason_since_timestamp_seconds", code="feed_silent") == 5.0
    assert seen("fraud_ready_check", check="broker") == 1
    assert seen("fraud_verdict", fraud_verdict="WARN") == 1


def trial_of(rollout: str) -> dict[str, Any]:
    """Fields of a progress record that tell of a rollout in shadow, except the totals."""
    event = {"rollout_id": rollout, "seq": 2, "type": "shadow_started", "offset": 7, "held_from": {"0": 55}}
    return {"applied": [{**event, "seq": 1, "type": "proposed", "offset": 6}, event]}


COUNTS = {
    "transactions": 100, "decided": 0, "failures": 2, "both": 3, "only_champion": 1, "only_challenger": 5,
    "card_hours": {"both": 2, "only_champion": 1, "only_challenger": 4},
    "cards": {"both": 2, "only_champion": 0, "only_challenger": 4},
    "rows": 110, "time_ms": 30.0, "champion_time_ms": 20.0,
    "scores": {"le": [0.5, 1.0], "counts": [95, 5, 0], "sum": 4.0},
    "champion_scores": {"le": [0.5, 1.0], "counts": [98, 2, 0], "sum": 3.0},
}  # fmt: skip


def test_rollouts_have_a_phase_and_counts_summed_over_the_groups() -> None:
    applied = trial_of("r1")["applied"]
    groups = {
        group: {
            "applied": applied[: 2 - group],
            "totals": {"trials": {"r1": {"seq": 2, "challengers": {"b": COUNTS}}}},
        }
        for group in (0, 1)
    }
    seen = Scraped(of_rollouts(groups))
    b = {"rollout_id": "r1", "challenger": "b"}
    assert seen("fraud_rollout_phase", rollout_id="r1", fraud_rollout_phase="shadow") == 1
    assert seen("fraud_rollout_phase", rollout_id="r1", fraud_rollout_phase="canary") == 0
    assert [seen("fraud_rollout_applied_seq", key_group=g, rollout_id="r1") for g in "01"] == [2, 1]
    assert seen("fraud_trial_transactions_total", **b) == 200
    assert seen("fraud_trial_verdicts_total", **b, alerted="only_challenger") == 10
    assert seen("fraud_trial_card_hours", **b, alerted="both") == 4
    assert seen("fraud_trial_scoring_seconds_total", **b, role="challenger") == pytest.approx(0.06)
    assert seen("fraud_trial_score_bucket", **b, role="champion", le="0.5") == 196
    assert seen("fraud_trial_score_count", **b, role="challenger") == 200


def test_a_group_that_has_applied_no_event_of_a_rollout_yet_disagrees_with_the_others() -> None:
    """Without a sample of the group, `FraudGroupsDisagree` would compare the others only."""
    r1, r2 = trial_of("r1")["applied"], [event | {"offset": 9} for event in trial_of("r2")["applied"]]
    groups = {
        group: {"applied": applied, "totals": {"trials": {}}}
        for group, applied in enumerate((r1 + r2, r1, [], r2))
    }
    seen = Scraped(of_rollouts(groups))
    by_group = [
        [seen("fraud_rollout_applied_seq", key_group=group, rollout_id=rollout) for group in "0123"]
        for rollout in ("r1", "r2")
    ]
    # group 3 has forgotten the events of r1, which were before those that it keeps
    assert by_group == [[2, 2, 0, None], [2, 0, 0, 2]]


def test_the_labels_of_rollouts_are_bounded() -> None:
    events = [
        {"rollout_id": f"r{n}", "seq": 1, "type": "proposed", "offset": n, "held_from": {}} for n in range(30)
    ]
    trials = {f"r{n}": {"seq": 1, "challengers": {f"c{m}": COUNTS for m in range(30)}} for n in range(30)}
    seen = Scraped(of_rollouts({0: {"applied": events, "totals": {"trials": trials}}}))
    named = {dict(labels).get("rollout_id") for _, labels in seen.samples}
    assert named == {f"r{n}" for n in range(25, 30)}
    assert len({dict(labels).get("challenger") for _, labels in seen.samples} - {None}) == 5


def test_guards_are_a_state_set() -> None:
    seen = Scraped(of_guards([("r1", "b", "alert_rate", "breach")]))
    labels = {"rollout_id": "r1", "challenger": "b", "guard": "alert_rate"}
    states = [
        seen("fraud_guard_verdict", **labels, fraud_guard_verdict=state)
        for state in ("pass", "breach", "insufficient")
    ]
    assert states == [0, 1, 0]


def test_labelled_cards_are_exported_by_role_and_label() -> None:
    seen = Scraped(
        of_labelled([("r1", "b", "challenger", Labelled(3, 1)), ("r1", "b", "champion", Labelled(7, 0))])
    )
    labels = {"rollout_id": "r1", "challenger": "b"}
    samples = {
        (role, outcome): seen("fraud_trial_labelled_cards", **labels, role=role, outcome=outcome)
        for role in ("challenger", "champion")
        for outcome in ("fraud", "genuine")
    }
    assert list(samples.values()) == [3, 1, 7, 0]


def test_requests_are_counted_by_the_routes_template() -> None:
    client = LocalClient(create_app(SETTINGS))
    for path in ("/livez", "/livez?x=1", "/nothing/here", "/nor/here", "/v1/status"):
        client.get(path)
    client.request("BREW", "/livez")
    text = client.get("/metrics").text
    samples = {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }

    def count(method: str, route: str, status: str) -> float | None:
        labels = {"method": method, "route": route, "status": status}
        return samples.get(("fraud_sidecar_http_requests_total", frozenset(labels.items())))

    assert count("GET", "/livez", "200") == 2
    assert count("GET", "unmatched", "404") == 2
    assert count("other", "/livez", "405") == 1
    assert count("GET", "/v1/status", "200") == 1
    durations = "fraud_sidecar_http_request_duration_seconds_count"
    assert samples[durations, frozenset({"route": "/livez"}.items())] == 3
    assert any(name.startswith("process_") for name, _ in samples)
