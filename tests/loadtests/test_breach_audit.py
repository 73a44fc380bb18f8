"""The audit of `breached` events accepts evidence with the job's own counts, and reports other evidence."""

from collections.abc import Callable
from typing import Any

import pytest
from audited_log import audit, job_output, trials
from harness.log_world import MINUTE
from oracle_world import World, challenger

from models.guards import policy
from models.guards.verdict import verdict

pytestmark = pytest.mark.unit
GUARDS = {"deadline_h": 1, "rules": [{"name": "failures", "max_share": 0.001}]}


def world() -> World:
    """A log in which the challenger fails for 100 of 200 transactions."""
    world = World()
    world.propose("x", challenger(version="3"), guards=GUARDS)
    world.event("shadow_started", "x", 2)
    for second in range(200):
        world.tx(second * 1000, 30.99 if second % 2 else 30.0, card_id=f"c{second}")
    return world


def evidence() -> dict[str, Any]:
    """What a sidecar writes after the job's first commit."""
    tried = world()
    tried.outcomes()
    counts = trials(tried)["x"]["challengers"]["b"]
    result = verdict(counts, policy.read(GUARDS)).to_json()
    assert result["verdict"] == "breach"
    return {**result, "commits": {"0": 1}}


def problems(said: dict[str, Any]) -> list[str]:
    """What the audit says about a log whose `breached` event has this evidence."""
    ended = world()
    ended.event("breached", "x", 3, arrival=5 * MINUTE, challenger="b", guard="failures", verdict=said)
    ended.event("rolled_back", "x", 4, arrival=5 * MINUTE)
    found = audit(job_output(ended))
    assert (found.findings.missing, found.findings.unexpected) == (0, 0)
    return found.problems


def changed(said: dict[str, Any], **counts: Any) -> dict[str, Any]:
    return {**said, "counts": {**said["counts"], **counts}}


def reassessed(said: dict[str, Any], **counts: Any) -> dict[str, Any]:
    """A verdict that follows from counts which are not the job's."""
    result = verdict(changed(said, **counts)["counts"], policy.read(GUARDS)).to_json()
    return {**said, **result}


def test_evidence_with_the_counts_of_the_job_is_right() -> None:
    assert problems(evidence()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda said: {**said, "verdict": "pass"}, "does not follow from its counts, which give breach"),
        (lambda said: {**said, "findings": []}, "does not follow from its counts"),
        (lambda said: reassessed(said, failures=101), "not the sum of the progress records that it names"),
        (lambda said: reassessed(said, rows=1), "not the sum of the progress records that it names"),
        (lambda said: {}, "has no evidence that can be read"),
        (lambda said: changed(said, failures="many"), "has no evidence that can be read"),
        (lambda said: {**said, "commits": {"first": 1}}, "has no evidence that can be read"),
        (lambda said: {name: said[name] for name in said if name != "commits"}, "has no evidence that can"),
    ],
)
def test_other_evidence_is_found(change: Callable[[dict[str, Any]], dict[str, Any]], problem: str) -> None:
    (said,) = problems(change(evidence()))
    assert said.startswith("the breach of x by b")
    assert problem in said


@pytest.mark.parametrize("commits", [{}, {"0": 2}, {"0": 1, "1": 1}])
def test_counts_are_not_compared_if_a_record_is_not_there(commits: dict[str, int]) -> None:
    """Evidence may rest on no commit; retention deletes progress; a later commit may not be audited yet."""
    assert problems({**reassessed(evidence(), failures=101), "commits": commits}) == []
    reported = problems({**evidence(), "commits": commits, "verdict": "pass"})
    assert any("does not follow" in problem for problem in reported)


def test_job_that_counts_wrongly_is_found_by_its_totals() -> None:
    ended = world()
    ended.event("breached", "x", 3, arrival=5 * MINUTE, challenger="b", guard="failures", verdict=evidence())
    log = job_output(ended)
    record = log.topics["job-progress"][0]
    log.topics["job-progress"][0] = record._replace(
        value=(record.value or b"").replace(b'"failures": 100', b'"failures": 99')
    )
    assert any("the breach of x by b: its counts are not the sum" in said for said in audit(log).problems)
