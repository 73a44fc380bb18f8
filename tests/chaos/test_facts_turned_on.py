"""Merchant facts are turned on by the switch to a replay that keeps them, while transactions and labels flow.

live job   without facts =========|seam
replay       `~ facts from the log's beginning ~ stopped
successor                          `= its state and facts ==
"""

from collections.abc import Callable, Iterator

import pytest
from harness.labelled_installation import LabelledInstallation, payments
from harness.replayed import Replayed, replays_of
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from feature_store.catalogue import DAY_MS
from streaming_job.contracts.topics import Topics
from streaming_job.facts.clock import hour_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200), only_thorough]

RECORDS = 2_000


@pytest.fixture
def replayed(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replayed]:
    """A live job without merchant facts, on a log with labels."""
    installed = LabelledInstallation(stack, topic_names(), tmp_path_factory.mktemp("facts"), RECORDS)
    installed.settings = installed.settings.model_copy(update={"merchant_facts": False})
    with replays_of(installed) as result:
        yield result


def test_facts_are_turned_on_by_a_switch_to_a_replay(replayed: Replayed) -> None:
    relay, installed = replayed.relay, replayed.relay.installed
    assert isinstance(installed, LabelledInstallation)
    installed.send(800)
    installed.caught_up(relay.job)
    shown = replayed.done("start", "facts", "--label-delay-days", "1", "--urgent")
    assert "merchant facts: kept by the replay, not by the live job" in shown
    installed.send(300)
    switched = replayed.command("switch", "facts")
    installed.send(300)
    replayed.take_over(switched)
    successor = replayed.record("facts").successor(installed.settings)
    assert (successor.merchant_facts, successor.label_delay_ms) == (True, DAY_MS)
    installed.settings = successor.model_copy(update={"predecessor": "", "predecessor_checkpoint": ""})
    installed.topics = successor.topics
    installed.send(400)
    relay.audit()
    facts, alerts = installed.facts(), installed.alerts()
    reports = [tuple(fact["source"].values()) for fact in facts if fact["kind"] == "report"]
    assert len(reports) == len(set(reports)) > 50
    promises = {fact["key_group"]: fact["until"] for fact in facts if fact["kind"] == "promise"}
    over = hour_of(min(promises.values()))
    counts: dict[tuple[int, int], int] = {}
    for fact in facts:
        if fact["kind"] == "counts" and fact["hour"] < over:
            for merchant, count in zip(fact["merchants"], fact["counts"], strict=True):
                counts[merchant, fact["hour"]] = counts.get((merchant, fact["hour"]), 0) + count
    assert counts == {at: count for at, count in payments(alerts).items() if at[1] < over}
    assert {"merchant_streak" in alert["features"] for alert in alerts} == {True, False}
    assert any(alert["features"].get("merchant_streak") for alert in alerts)
    assert "begin another replay" in replayed.done("start", "facts", status=1)
