"""The monitor's history of samples, the diagnosis, rollout phases, and `/v1/status`."""

import itertools
from collections import Counter
from typing import Any

import orjson
import pytest
from harness.progress_records import progress

from service.health import examples
from service.health.codes import Verdict
from service.health.diagnosis import diagnose
from service.health.job_watch import Onsets, View
from service.health.lag import Lag, PartitionLag
from service.health.monitor import Monitor
from service.health.partition_samples import partition_samples
from service.health.readiness import checks
from service.health.rollout_progress import open_rollout, phases, trials
from service.health.status import status_of
from service.health.verdicts import Limits, PartitionSample, evaluate
from service.settings import ServiceSettings
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.progress.totals import Totals
from streaming_job.progress.trials import ChallengerCounts

pytestmark = pytest.mark.unit
SETTINGS = ServiceSettings(bootstrap_servers="127.0.0.1:1", runbook="https://bank.example/runbook")
START = 1_700_000_000.0
REASONS = {reason.value for reason in Reason}


def record(commit_id: int, written_s: float, group: int = 0, **changes: Any) -> dict[str, Any]:
    written = int(written_s * 1000)
    result = progress(commit_id, group, **{"written_at": written, "started_at": written - 100, **changes})
    for entry in result["partitions"]:
        entry["active_at"] = written
    return result


class Sidecar:
    """A sidecar that reads the progress of a job of one key group, every two seconds."""

    def __init__(self) -> None:
        self.monitor = Monitor(SETTINGS)
        self.now = START
        self.groups: dict[int, dict[str, Any]] = {}
        self.lag = Lag(START, ())

    def look(self, *, position: int, end: int, stable: int | None = None, **lag: Any) -> None:
        self.now += 2.0
        waits = position < end
        part = PartitionLag(
            "transactions", 0, 0, end, position, int((self.now - 1) * 1000) if waits else None, stable
        )
        self.lag = Lag(self.now, (part,), **lag)
        totals = Totals.of_groups(Totals.from_json(r["totals"]) for r in self.groups.values())
        self.monitor.see(self.lag, self.groups, totals)

    def status(self) -> dict[str, Any]:
        result = checks(
            now_s=self.now,
            broker_fault=None,
            waiting_for=None,
            lag=self.lag,
            groups=self.groups,
            transactions_topic="transactions",
            max_age_s=60.0,
            max_silence_s=30.0,
        )
        diagnosis = diagnose(self.now, result, self.monitor.assessment, self.lag, self.groups)
        totals = Totals.of_groups(Totals.from_json(r["totals"]) for r in self.groups.values())
        view = View(
            self.now, result, self.groups, self.lag, self.monitor.assessment, diagnosis, totals, True, True, 0
        )
        return status_of(view, SETTINGS, {"sidecar": "1"})


def test_key_groups_that_a_successor_does_not_have_have_no_epoch() -> None:
    sidecar = Sidecar()
    sidecar.groups = {group: record(1, START, group, epoch=7, key_groups=2) for group in range(2)}
    sidecar.look(position=1, end=1)
    assert set(sidecar.status()["epoch"]["age_s"]) == {"0", "1"}
    sidecar.groups = {0: record(2, START + 3_000, epoch=8)}
    sidecar.now += 3_000
    sidecar.look(position=1, end=1)
    shown = sidecar.status()["epoch"]
    assert set(shown["age_s"]) == {"0"}
    assert shown["checkpoint_age_s"] < 10


def test_a_working_job_is_ok_and_has_rates() -> None:
    sidecar = Sidecar()
    for commit in range(1, 11):
        sidecar.groups = {0: record(commit, sidecar.now + 1.9)}
        sidecar.look(position=100 * commit, end=100 * commit)
    status = sidecar.status()
    assert (status["verdict"], status["reasons"], status["restarts"]) == ("OK", [], 0)
    assert status["throughput_per_s"] == pytest.approx(50.0)
    assert 100 < status["latency_ms"]["p50"] < 200
    assert [(i["verdict"], i["code"], i["lag_records"]) for i in status["inputs"]] == [
        ("OK", "keeping_up", 0)
    ]
    assert status["dead_letters"] == {"malformed_json": 10, "too_late": 10}
    assert status["state"]["cards"] == 50
    assert status["rollout"]["champion"]["rollout_id"] == "card-fraud-1"
    assert status["rollout"]["open"] is None
    assert status["versions"]["job"] == "0.1.0+0123abcd"
    assert status["limits"]["commit_s"] == SETTINGS.limit_floor_s  # commits take 0.1 s
    states = {part["name"]: part["state"] for part in status["parts"]}
    assert states.pop("feed") == "unknown"  # without heartbeats nobody knows whether the feed is alive
    assert set(states.values()) == {"ok"}


def test_a_clock_that_was_set_back_does_not_keep_a_verdict_alive() -> None:
    sidecar = Sidecar()
    commits = itertools.count(1)

    def work(looks: int, position: int) -> dict[str, Any]:
        for _ in range(looks):
            sidecar.groups = {0: record(next(commits), sidecar.now + 1.9)}
            sidecar.look(position=position, end=position)
        return sidecar.status()

    work(3, position=100)
    assert work(3, position=50)["inputs"][0]["code"] == "position_went_back"
    sidecar.now -= 3_600
    status = work(200, position=50)
    assert (status["verdict"], status["reasons"]) == ("IDLE", [])
    assert status["throughput_per_s"] == pytest.approx(50.0)


TAKEOVER = {
    "query_id": "q-1", "release": "0.1.0+0123abcd", "key_groups": 2, "commit_id": 7, "asked_by": "ines",
    "at": int(START * 1000),
}  # fmt: skip


def shape(value: Any) -> Any:
    """Field names at every depth: of a list, its first element's; none if the keys are numbers or reasons."""
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if not isinstance(value, dict) or all(name.isdigit() or name in REASONS for name in value):
        return None
    return {name: shape(part) for name, part in value.items()}


def test_the_example_of_the_api_documentation_has_the_fields_of_an_answer() -> None:
    sidecar = Sidecar()
    for commit in range(1, 30):  # the end grows, the position stays
        sidecar.groups = {0: {**record(commit, sidecar.now + 1.9), "takeover": TAKEOVER}}
        feed = {"change": int(START * 1000), "heartbeat": int(sidecar.now * 1000)}
        sidecar.look(position=100, end=100 + commit, feed_ms=feed)
    status = sidecar.status()
    assert status["reasons"]
    assert status["takeover"] == {
        "query_id": "q-1", "release": "0.1.0+0123abcd", "key_groups": 2, "asked_by": "ines", "at": START
    }  # fmt: skip
    example = {**examples.STATUS, "watermark": {**examples.STATUS["watermark"], "idle": []}}
    assert shape(example) == shape({**status, "versions": examples.STATUS["versions"]})


def test_a_job_that_dies_is_stopped_since_its_last_commit() -> None:
    sidecar = Sidecar()
    for commit in range(1, 5):
        sidecar.groups = {0: record(commit, sidecar.now + 1.9)}
        sidecar.look(position=100 * commit, end=100 * commit)
    died = sidecar.groups[0]["written_at"] / 1e3
    verdicts = []
    for _ in range(12):
        sidecar.now += 2.0
        part = PartitionLag("transactions", 0, 0, 450, 400, int(died * 1000) - 500)
        sidecar.lag = Lag(sidecar.now, (part,))
        sidecar.monitor.see(sidecar.lag, sidecar.groups, Totals())
        assert sidecar.monitor.assessment is not None
        verdicts.append(sidecar.monitor.assessment.verdict)
    assert verdicts[0] is Verdict.OK
    assert verdicts[-1] is Verdict.STOP
    status = sidecar.status()
    assert status["verdict"] == "STOP"
    reason = status["reasons"][0]
    assert (reason["code"], reason["runbook"]) == ("no_commits", "https://bank.example/runbook#no_commits")
    assert reason["since"] == pytest.approx(died, abs=0.01)
    assert status["inputs"][0]["lag_seconds"] == pytest.approx(sidecar.now - died + 0.5)


def test_held_records_are_blocked_and_the_limit_is_learned_from_earlier_ones() -> None:
    sidecar = Sidecar()
    for commit in range(1, 4):  # transactions of a producer, each open for a second
        sidecar.groups = {0: record(commit, sidecar.now + 1.9)}
        sidecar.look(position=100 + commit, end=101 + commit, stable=100 + commit)
        sidecar.look(position=101 + commit, end=101 + commit)
    assert sidecar.monitor.assessment is not None
    assert sidecar.monitor.assessment.limits.held_s == 10.0  # ten times 1 s, which is also the floor
    since = sidecar.now
    for _ in range(7):
        sidecar.now += 2.0
        sidecar.groups = {0: record(9, sidecar.now)}
        held = PartitionLag("transactions", 0, 0, 108, 105, int(since * 1000), held_from=105)
        sidecar.lag = Lag(sidecar.now, (held,))
        sidecar.monitor.see(sidecar.lag, sidecar.groups, Totals())
    status = sidecar.status()
    assert status["verdict"] == "BLOCKED"
    assert status["inputs"][0]["held"] == 3


def test_restarts_are_instances_that_took_over() -> None:
    sidecar = Sidecar()
    for names in (["a"], ["a"], [], ["a", "b"], ["b"], ["c"]):
        sidecar.groups = {0: record(1, sidecar.now)}
        sidecar.look(position=100, end=100, instances=frozenset(names))
    assert sidecar.status()["restarts"] == 2


def test_a_missing_heartbeat_of_the_feed_is_judged_by_its_usual_interval() -> None:
    sidecar = Sidecar()
    for beat in range(1, 30):
        sidecar.groups = {0: record(beat, sidecar.now + 1)}
        sidecar.look(position=5, end=5, feed_ms={"heartbeat": int(sidecar.now * 1000)})
    assert sidecar.status()["reasons"] == []
    last = sidecar.lag.feed_ms
    for beat in range(30, 42):
        sidecar.groups = {0: record(beat, sidecar.now + 1)}
        sidecar.look(position=5, end=5, feed_ms=last)
    status = sidecar.status()
    assert [reason["code"] for reason in status["reasons"]] == ["feed_silent"]  # limit: ten times 2 s
    assert status["reasons"][0]["since"] == last["heartbeat"] / 1e3


def test_epochs_that_do_not_end_are_reported() -> None:
    sidecar = Sidecar()
    codes: list[list[str]] = []
    for commit in range(1, 60):
        epoch = min(commit // 2, 15)  # epochs of four seconds; epoch 15 never ends
        sidecar.groups = {0: record(commit, sidecar.now + 1.9, epoch=epoch)}
        sidecar.look(position=100 * commit, end=100 * commit)
        codes.append([reason["code"] for reason in sidecar.status()["reasons"]])
    assert codes[34] == []
    assert codes[-1] == ["checkpoint_old"]
    epoch = sidecar.status()["epoch"]
    assert epoch["number"] == 15
    assert epoch["checkpoint_age_s"] == pytest.approx(58.1)


def test_an_epoch_of_usual_length_may_follow_some_that_have_ended_early() -> None:
    sidecar = Sidecar()
    codes: list[str] = []
    for commit in range(1, 30):
        sidecar.groups = {0: record(commit, sidecar.now + 1.9, epoch=min(commit, 15))}
        sidecar.look(position=100 * commit, end=100 * commit)
        codes += [reason["code"] for reason in sidecar.status()["reasons"]]
    assert sidecar.status()["epoch"]["checkpoint_age_s"] > 26
    assert codes == []


def test_a_table_is_read_by_all_groups_and_transactions_by_one() -> None:
    groups = {g: record(5, START + g, group=g, key_groups=2) for g in (0, 1)}
    parts = (PartitionLag("profiles", 0, 0, 500, 500), PartitionLag("transactions", 1, 0, 9, 9))
    lag = Lag(START + 2, parts)
    samples = partition_samples(lag, groups, Topics())
    assert samples["profiles", 0].committed_at_s == START  # of the group that has been silent for longest
    assert samples["transactions", 1].committed_at_s == START + 1
    alone = partition_samples(lag, {1: groups[1]}, Topics())
    assert (alone["profiles", 0].position, alone["profiles", 0].committed_at_s) == (None, None)
    assert alone["transactions", 1].position == 9


def test_labels_behind_waiting_transactions_have_no_fault_of_their_own() -> None:
    """While the job catches up, labels wait as long as the transactions that arrived before them."""
    topics = Topics()
    since = int(START * 1000)

    def look(at_s: float, transaction_since: int | None, labels: int = 3) -> PartitionSample:
        parts = (
            PartitionLag(topics.transactions, 0, 0, 500, 400, transaction_since),
            PartitionLag(topics.labels, 0, 0, 10 + labels, 10, since + 1_000),
        )
        records = {0: record(5, at_s)}
        mine = {"topic": topics.labels, "partition": 0, "end_offset": 10, "active_at": since}
        records[0]["partitions"].append({**records[0]["partitions"][0], **mine})
        return partition_samples(Lag(at_s, parts), records, topics)[topics.labels, 0]

    limits = Limits(commit_s=10.0, latency_s=10.0, held_s=10.0, idle_s=10.0)
    window = [look(START + 2 + 2 * n, since) for n in range(100)]
    assert evaluate(window, limits).code == "waiting_for_transactions"
    window.append(look(START + 204, since + 203_000))  # the earlier transactions are decided, labels not yet
    assert evaluate(window, limits).code == "keeping_up"
    window += [look(START + 206 + 2 * n, since + 205_000 + 2_000 * n) for n in range(10)]
    assert evaluate(window, limits).code == "not_moving"


def counted(**changes: Any) -> Totals:
    """Totals with these numbers in `counts`, and in `dead_letters_by_topic` if they are named by topic."""
    topics = {"profiles": Topics().profiles, "labels": Topics().labels, "rollouts": Topics().model_rollouts}
    totals = Totals()
    for name, number in changes.items():
        kind, _, source = name.partition("_of_")
        if kind == "dead":
            totals.dead_letters_by_topic[topics.get(source, source)] = number
        elif name == "too_old":
            totals.dead_letters[Reason.LABEL_TOO_OLD.value] = number
        else:
            totals.counts[name] = number
    return totals


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ({"transactions": 900}, {"transactions": 1_000, "dead_of_transactions": 99}, []),
        ({}, {"dead_of_transactions": 5}, ["transactions"]),
        ({}, {"dead_of_transactions": 4}, []),
        ({"dead_of_profiles": 900}, {"dead_of_profiles": 900, "profile_changes": 1}, []),
        ({}, {"dead_of_profiles": 6, "profile_changes": 5, "transactions": 10**6}, ["profiles"]),
        ({}, {"dead_of_labels": 3, "dead_of_chargebacks": 3, "labels": 5}, ["labels"]),
        ({}, {"dead_of_labels": 9, "dead_of_chargebacks": 9, "too_old": 14, "labels": 9}, []),
        ({}, {"dead_of_rollouts": 5}, ["rollouts"]),
        ({}, {"transactions": 100, "scoring_failures": 51}, ["51 of 100"]),
        ({}, {"transactions": 100, "scoring_failures": 50}, []),
        ({}, {"foreign_facts": 1}, ["merchant facts"]),
        ({"transactions": 9, "foreign_facts": 5}, {"transactions": 5, "foreign_facts": 5}, []),
    ],
)
def test_what_fails_most_of_the_time_is_a_reason(before: Any, after: Any, codes: list[str]) -> None:
    sidecar = Sidecar()
    sidecar.groups = {0: record(1, START)}
    for at_s, numbers in ((START + 2, before), (START + 4, after)):
        sidecar.monitor.see(Lag(at_s, ()), sidecar.groups, counted(**numbers))
    sidecar.lag, sidecar.now = Lag(START + 4, ()), START + 4
    details = [reason["detail"] for reason in sidecar.status()["reasons"]]
    assert [any(detail.startswith(code) for detail in details) for code in codes] == [True] * len(details)
    assert len(details) == len(codes)


def test_what_failed_is_forgotten_after_the_window() -> None:
    sidecar = Sidecar()
    sidecar.groups = {0: record(1, START)}
    for after_s in range(0, 400, 2):
        failed = counted(foreign_facts=min(after_s, 1))
        sidecar.monitor.see(Lag(START + after_s, ()), sidecar.groups, failed)
        assert sidecar.monitor.assessment is not None
        recent = sidecar.monitor.assessment.recent
        assert recent is None or bool(recent.foreign_facts) == (after_s <= SETTINGS.verdict_window_s)


def event(rollout: str, seq: int, kind: str) -> dict[str, Any]:
    held = {"0": 40 + seq}
    return {"rollout_id": rollout, "seq": seq, "type": kind, "offset": 10 + seq, "held_from": held}


def test_phases_follow_the_applied_events() -> None:
    kinds = ["proposed", "shadow_started", "canary_set", "paused", "resumed", "paused", "rolled_back"]
    after = []
    for number in range(1, len(kinds) + 1):
        applied = [event("r", seq, kind) for seq, kind in enumerate(kinds[:number], start=1)]
        after.append(phases({0: {"applied": applied}})["r"])
    assert after == ["proposed", "shadow", "canary", "paused", "canary", "paused", "rolled_back"]


@pytest.mark.parametrize("kinds", [["paused", "resumed"], ["resumed", "unknown"]])
def test_a_rollout_whose_older_events_are_gone_is_no_longer_paused_when_resumed(kinds: list[str]) -> None:
    applied = [event("r", seq, kind) for seq, kind in enumerate(kinds, start=40)]
    assert phases({0: {"applied": applied}}) == {"r": "shadow"}


def trials_of(*rollout_ids: str) -> dict[str, Any]:
    """Totals in which each rollout's challenger has scored one transaction."""
    counts = {"b": ChallengerCounts(Counter(transactions=1)).to_json()}
    counts = orjson.loads(orjson.dumps(counts, option=orjson.OPT_SERIALIZE_NUMPY))
    return {"totals": {"trials": {name: {"seq": 1, "challengers": counts} for name in rollout_ids}}}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_trials_are_summed_over_all_groups_or_left_out(order: tuple[int, ...]) -> None:
    """Group 1 has not counted r4 yet, for which the others have dropped r1."""
    groups = [trials_of("r2", "r3", "r4"), trials_of("r1", "r2", "r3"), trials_of("r2", "r3", "r4")]
    total = trials({number: groups[number] for number in order})
    assert {name: trial.challengers["b"].numbers["transactions"] for name, trial in total.items()} == {
        "r2": 3,
        "r3": 3,
        "r4": 2,
    }


def test_trials_that_groups_counted_in_another_order_are_all_kept() -> None:
    groups = [trials_of("r1", "r2", "r3"), trials_of("r2", "r1", "r3"), trials_of("r3")]
    assert set(trials(dict(enumerate(groups)))) == {"r1", "r2", "r3"}


def test_the_open_rollout_names_the_groups_that_applied_it() -> None:
    events = [event("r", seq, kind) for seq, kind in ((1, "proposed"), (2, "shadow_started"))]
    groups = {
        0: {"applied": events, "totals": {"trials": {}}},
        1: {"applied": events[:1], "totals": {"trials": {}}},
        2: {"applied": [], "totals": {"trials": {}}},
    }
    status = open_rollout(groups)
    assert status is not None
    assert (status["phase"], status["seq"], status["applied_by"], status["held_from"]) == (
        "shadow",
        2,
        [0],
        {"0": 42},
    )
    over = {0: {"applied": [*events, event("r", 3, "promoted")], "totals": {"trials": {}}}}
    assert open_rollout(over) is None
    assert open_rollout({0: {"applied": [], "totals": {"trials": {}}}}) is None


def test_an_unusable_rollout_is_reported_until_a_usable_one() -> None:
    """The events of r1 have offsets 11 and 12; r2, at 13, is set aside.

    Five continuations: r1 is withdrawn; r3 is proposed; only the newest events of r3 are named; nothing
    follows; no event has been applied.
    """
    sidecar, aside = Sidecar(), {"13": "model_refused"}
    installed = [event("r1", 1, "proposed"), event("r1", 2, "promoted")]
    codes = []
    for applied in (
        [*installed, event("r1", 4, "withdrawn")],
        [*installed, event("r3", 4, "proposed")],
        # of many events a progress record names only the newest
        [event("r3", 7, "canary_set"), event("r3", 8, "rolled_back")],
        installed,
        [],
    ):
        sidecar.groups = {0: record(9, sidecar.now + 1.9, applied=applied, rollouts_set_aside=aside)}
        sidecar.look(position=900, end=900)
        codes.append([reason["code"] for reason in sidecar.status()["reasons"]])
    assert codes == [["rollouts_set_aside"], [], [], ["rollouts_set_aside"], ["rollouts_set_aside"]]
    assert sidecar.status()["reasons"][0]["detail"] == "key group 0: rollout at offset 13: model_refused"


def test_an_onset_is_kept_as_long_as_the_reason_holds() -> None:
    onsets = Onsets()
    assert onsets.of({"a"}, 1.0) == {"a": 1.0}
    assert onsets.of({"a", "b"}, 2.0) == {"a": 1.0, "b": 2.0}
    assert onsets.of({"b"}, 3.0) == {"b": 2.0}
    assert onsets.of({"a"}, 4.0) == {"a": 4.0}
