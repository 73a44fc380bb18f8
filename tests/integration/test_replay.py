"""A replay beside a live job: the same bytes if nothing was changed, then a switch to it, and the way back.

live job   v1 ====== transactions, late and broken ones ======|seam            |seam ====
replay       `~ killed ~ one key group ~ the same bytes       |switch =========|back
"""

import json
import random
import shutil

import pytest
from harness.replayed import Replayed
from thoroughness import only_thorough

from deploy.local.waiting import Patience
from deploy.replay import inputs
from loadtests.audit.comparison import OUTPUTS
from loadtests.audit.topic_log import TopicLog
from loadtests.faults.installation import Installation, query_of
from loadtests.simulator.world import World
from streaming_job.progress.last_record import positions
from streaming_job.progress.record import ROLLOUT_TOPICS
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.settings import JobSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_200)]

CAUSES = {"policy", "earlier alerts of the card"}
"""Causes of the differences that another policy makes."""
PACE_S = 0.5
ALERTS = [OUTPUTS.index(field) for field in ("fraud_alerts", "suppressed_alerts")]


@only_thorough
def test_a_replay_that_changes_nothing_writes_the_same_bytes_although_it_is_killed(
    replayed: Replayed,
) -> None:
    relay = replayed.relay
    for number in range(3):
        relay.burst(800)
        relay.change_profiles(random.Random(number))
    replayed.done("plan", "same", "--key-groups", "1")
    relay.installed.caught_up(relay.job)
    first = replayed.command("start", "same", "--key-groups", "1", "--urgent")
    patience = Patience(400.0, 0.05)
    log = replayed.installed.directory / "work" / "replays" / "same" / "job.log"
    while not log.exists() or " epoch 0: " not in log.read_text():
        first.check()
        patience.wait(lambda: AssertionError(first.log))
    orphans = first.kill_alone()  # its job goes on: the next start has to end it
    assert any(orphan.is_running() for orphan in orphans)
    assert "decided to the end" in replayed.done("start", "same", "--urgent")
    live, again = replayed.outputs(relay.installed.topics), replayed.outputs(replayed.topics("same"))
    assert len(live) > 100
    assert again == live
    compared = replayed.compared(
        "same", {kind: {"max": 0} for kind in ("differences.other_decision", "replay.repeated")}
    )
    assert set(compared["differences"].values()) == {0}
    assert {count["differing"] for count in compared["others"].values()} == {0}
    assert compared["equal"] == sum(name[0] in ALERTS for name in live)


@only_thorough
def test_a_switch_under_load_loses_and_doubles_nothing(replayed: Replayed) -> None:
    """At the seam one partition is idle, and in the other some transactions are too late."""
    relay, installed = replayed.relay, replayed.installed
    cards, installed.world = installed.world, World.create(seed=9, cards=1)
    before, too_late = installed.ends(installed.topics.transactions), installed.reasons()["too_late"]
    with relay.busy(PACE_S):
        replayed.take_over(replayed.command("switch", "same"))
    after, installed.world = installed.ends(installed.topics.transactions), cards
    assert sorted(after[partition] == end for partition, end in before.items()) == [False, True]
    relay.burst()
    relay.audit()
    assert installed.reasons()["too_late"] > too_late
    assert "--end-way-back" in replayed.done("drop", "same", status=1)


@only_thorough
def test_a_switch_killed_at_each_step_is_repeated_and_there_is_a_way_back(replayed: Replayed) -> None:
    points = replayed.installed.directory / "crash-points"
    with replayed.relay.busy(PACE_S):
        replayed.take_over(replayed.command("back", "same"))
        for step in (Failpoint.CLAIMED, Failpoint.SEAM):
            (points / step).touch()
            killed = replayed.command("switch", "same")
            patience = Patience(400.0, 0.05)
            while not (reached := [*points.glob(f"{step}.*")]):
                killed.check()
                patience.wait(lambda killed=killed: AssertionError(killed.log))
            reached[0].unlink()
            killed.kill()
            successor = replayed.command("switch", "same")
            replayed.relay.job.exit_code()
            replayed.relay.job = successor
            replayed.relay.installed.caught_up(successor)
            replayed.take_over(replayed.command("back", "same"))
    replayed.relay.audit()
    dropped = replayed.done("drop", "same")
    assert f"topic {replayed.installed.topics.fraud_alerts}-replay-same" in dropped
    assert "there is no replay same" in replayed.done("switch", "same", status=1)


@only_thorough
def test_from_a_kept_checkpoint_a_replay_writes_what_came_after_it(replayed: Replayed) -> None:
    """Also with a policy of its own, which is the only one that then decides."""
    installed, relay = replayed.installed, replayed.relay
    relay.burst(800)
    installed.caught_up(relay.job)
    kept = str(installed.directory / "kept")
    relay.job.terminate()
    shutil.copytree(installed.settings.checkpoint, kept)
    relay.job = installed.start(**replayed.settings)
    relay.burst(1_500)
    relay.change_profiles(random.Random(5))
    installed.caught_up(relay.job)
    replayed.done("start", "later", "--from", kept, "--key-groups", "1", "--urgent")
    compared = replayed.compared("later", {"replay.alerts": {"min": 1}})
    assert all(start > 0 for start, _ in compared["range"].values())
    assert set(compared["differences"].values()) == {0}
    assert {count["differing"] for count in compared["others"].values()} == {0}
    replayed.done("start", "other", "--from", kept, "--threshold", "0.99", "--urgent")
    progress = [
        json.loads(each.value or b"") for each in installed.read(replayed.topics("other").job_progress)
    ]
    deciding = [installed.topics.model_rollouts, replayed.topics("other").model_rollouts]
    named = [row[ROLLOUT_TOPICS] for row in progress if ROLLOUT_TOPICS in row]
    assert named
    assert all(topics == deciding for topics in named)
    compared = replayed.compared("other", {"replay.alerts": {"min": 1}})
    assert sum(compared["differences"].values()) > 0
    assert {cause for counts in compared["causes"].values() for cause in counts} <= CAUSES


@only_thorough
def test_another_policy_decides_from_the_seam_on_as_in_its_replay(replayed: Replayed) -> None:
    installed, relay = replayed.installed, replayed.relay
    relay.burst(800)
    installed.caught_up(relay.job)
    replayed.done("start", "strict", "--threshold", "0.01", "--max-count-5m", "3", "--urgent")
    compared = replayed.compared("strict", {"differences.only_replay": {"max": 0}}, status=1)
    assert compared["differences"]["only_replay"] > 0
    assert {cause for counts in compared["causes"].values() for cause in counts} <= CAUSES
    before = query_of(installed.settings.checkpoint)
    with relay.busy(PACE_S):
        replayed.take_over(replayed.command("switch", "strict"))
    _decided(installed, replayed.record("strict").successor(installed.settings))
    installed.audit()  # each side by its own rollouts
    seam = {
        partition: end
        for each in installed.progress()
        if (content := json.loads(each.value or b"")).get("takeover", {}).get("query_id") == before
        and content["commit_id"] == content["takeover"]["commit_id"]
        for (topic, partition), end in positions(content).items()
        if topic == installed.topics.transactions
    }
    # the replay goes on over what the successor has decided: the same bytes
    following = replayed.command("start", "strict", "--follow", "--urgent")
    following.wait_until(
        lambda: (
            sum(installed.ends(replayed.topics("strict").fraud_alerts).values())
            and not _behind(installed, replayed.record("strict").settings(installed.settings))
        ),
        120.0,
    )
    assert following.terminate() == 0
    again = replayed.outputs(replayed.topics("strict"))
    live = replayed.outputs(installed.topics)
    after = {
        name
        for name in {*again, *live}
        if name[1] == installed.topics.transactions and name[3] >= seam[name[2]]
    }
    assert len(after) > 20
    assert {name: live.get(name) for name in after} == {name: again.get(name) for name in after}
    with relay.busy(PACE_S):
        replayed.take_over(replayed.command("back", "strict"))
    relay.audit()
    dropped = replayed.done("drop", "strict")
    assert f"audited by it: {replayed.installed.topics.model_rollouts}-replay-strict" in dropped
    relay.audit()


def _behind(installed: Installation, settings: JobSettings) -> int:
    return inputs.lag(TopicLog(installed.stack.bootstrap_servers), settings)


def _decided(installed: Installation, settings: JobSettings) -> None:
    """Wait until a job has decided all transactions, whichever rollouts it reads."""
    patience = Patience(400.0, 0.2)
    while behind := _behind(installed, settings):
        patience.wait(lambda behind=behind: AssertionError(f"{behind} transactions behind"), behind)
