"""Replays over an archive and the topics: the same bytes, although the topics have lost their first half.

live job   v1 ===============================================
archive    ------------------------------|
topics     .......... deleted ..........|--------------------
replays    `~~~~ from the archive ~~~~~~|~ from the topics ~~   with other mini-batches and key groups
"""

import random

import pytest
from confluent_kafka import TopicPartition
from harness.replayed import Replayed
from thoroughness import only_thorough

from deploy.local import topics as broker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2_400)]


def delete(replayed: Replayed, topic: str, ends: dict[int, int]) -> None:
    """Delete the records before these offsets, as retention does."""
    admin = broker.admin(replayed.installed.stack.bootstrap_servers)
    for answer in admin.delete_records([TopicPartition(topic, *end) for end in ends.items()]).values():
        answer.result()


@only_thorough
def test_a_replay_writes_the_same_bytes_although_the_topics_have_lost_their_beginning(
    replayed: Replayed,
) -> None:
    installed, relay = replayed.installed, replayed.relay
    archive = str(installed.directory / "archive")
    for number in range(2):
        relay.burst(800)
        relay.change_profiles(random.Random(number))
    installed.caught_up(relay.job)
    replayed.done("run", archive, "--until-now", group="archive")
    transactions = installed.topics.transactions
    archived = installed.ends(transactions)
    relay.burst(800)
    relay.change_profiles(random.Random(2))
    installed.caught_up(relay.job)
    live = replayed.outputs(installed.topics)
    assert len(live) > 100
    delete(replayed, transactions, {part: end * 3 // 4 for part, end in archived.items()})
    alerts = installed.topics.fraud_alerts
    delete(replayed, alerts, {part: end // 4 for part, end in installed.ends(alerts).items()})
    assert "give --archive" in replayed.done("plan", "cut", status=1)
    planned = replayed.done("plan", "whole", "--archive", archive)
    assert "nothing differs" in planned
    assert f"0: before {archived[0]:,}" in planned
    for most, groups in ((7, 1), (200, 2), (50_000, 1)):
        name = f"by-{most}"
        options = ("--archive", archive, "--key-groups", str(groups), "--urgent")
        replayed.done("start", name, *options, max_records=most)
        assert replayed.outputs(replayed.topics(name)) == live
    limits = {kind: {"max": 0} for kind in ("differences.only_live", "differences.only_replay")}
    compared = replayed.compared("by-7", limits)
    assert {first for first, _ in compared["range"].values()} == {0}
    assert compared["not_kept"] == 0
    replayed.record("by-7").saved(archive="")
    compared = replayed.compared("by-7", limits)
    assert {first for first, _ in compared["range"].values()}.isdisjoint({0})
    assert 0 < compared["not_kept"] < sum(archived.values())


@only_thorough
def test_a_log_with_a_hole_is_refused_before_anything_is_written(replayed: Replayed) -> None:
    installed = replayed.installed
    archive = installed.directory / "archive"
    installed.send(200)
    installed.caught_up(replayed.relay.job)
    transactions = installed.topics.transactions
    ends = installed.ends(transactions)
    delete(replayed, transactions, ends)
    hole = f"to {ends[0]} of {transactions}-0 are in neither archive nor topic"
    assert hole in replayed.done("start", "holes", "--archive", str(archive), status=1)
    replayed.done("run", str(archive), "--until-now", "--accept-loss", group="archive")
    assert "--partial" in replayed.done("start", "holes", "--archive", str(archive), status=1)
    assert "holes" not in replayed.done("status")
