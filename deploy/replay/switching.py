"""The switch to a replay, and the way back: each is a takeover of the live output by a job in this process.

The successor of a switch begins with the state of the replay's checkpoint. Both commands may be repeated: the
job continues if the output is its own already. So a supervisor may run them in the place of `fraud job run`.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

from deploy.local.processes import running as is_running
from deploy.local.waiting import Patience
from deploy.replay import checkpoints, running
from deploy.replay.record import Replay, ReplayError
from deploy.replay.rollout import carry_demands_over, live_line
from models.rollouts.events import Demands
from streaming_job.log.records import Offsets
from streaming_job.progress import last_record
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import newest_records
from streaming_job.transaction.written import WrittenReader

BEHIND_S, LOOK_S = 30.0, 0.2
"""Time within which the live output has to reach the state of the replay: it may be a moment behind."""


def writers(live: JobSettings) -> tuple[str, str]:
    """Return the query that has written the live output last, and the one that takes it over; else empty."""
    records = newest_records(live)
    query = str(next(iter(records.values()))["query_id"]) if records else ""
    topic = live.topics.transactions
    partitions = [tp for record in records.values() for tp in last_record.positions(record) if tp[0] == topic]
    with closing(WrittenReader(live, 0, sorted(set(partitions)))) as reader:
        successors = {mark.successor for mark in reader.marks() if mark.successor}
    return query, min(successors, default="")


def require_switchable(live: JobSettings, replay: Replay, *, takes_partial: bool) -> None:
    """Check that the replay's state can continue the live output.

    Args:
        takes_partial: whether a state without the beginning of the log is accepted.

    Raises:
        ReplayError: it cannot.
    """
    if replay.is_partial and not takes_partial:
        raise ReplayError(
            "the log had lost its beginning when the replay was started, so the live output would be decided "
            "without the cards' earlier transactions; replay from an archive (--archive), or from a copy of "
            "the live checkpoint (--from), or accept that with --partial"
        )
    settings = replay.settings(live)
    if settings.merchant_facts:
        if replay.is_spent and not is_successors(live, replay, writers(live)[0]):
            raise _spent(replay)
        # an idle one may write nothing while the successor looks at its output, and go on afterwards
        if is_running(replay.server):
            raise ReplayError(
                f"{replay.name} runs, and its facts are to be continued: stop it with Ctrl-C or SIGTERM"
            )
    state = _positions(newest_records(settings))
    if not state:
        raise ReplayError(f"the replay has decided nothing; run `fraud replay start {replay.name}`")
    patience = Patience(BEHIND_S, LOOK_S)
    while missing := _ahead(state, _positions(newest_records(live))):
        patience.wait(
            partial(ReplayError, f"the live output is behind the replay in {missing}; start the live job")
        )


def begin_switch(live: JobSettings, replay: Replay, demands: Demands, *, takes_partial: bool) -> JobSettings:
    """Note the switch in the record; return the settings of the job to run.

    Args:
        demands: those of this installation; the stricter of these and those in the log count.
        takes_partial: see `require_switchable`.

    Raises:
        ReplayError: the state cannot continue the live output, or two people are needed.
    """
    is_live = replay.is_switched and writers(live)[0] != replay.live_query
    if not is_live and replay.has_own_rollouts and live_line(live).demands.tightened_by(demands).four_eyes:
        raise ReplayError(
            "a switch to another model or policy is a promotion, which needs two people here: promote it by "
            "`fraud rollouts` instead"
        )
    if not replay.is_switched:
        require_switchable(live, replay, takes_partial=takes_partial)
        former, _ = writers(live)
        if replay.live_query and is_successors(live, replay, former):  # the way back was not finished
            former = replay.live_query
        replay = replay.saved(live_query=former, is_switched=True)
    settings = replay.successor(live)
    with checkpoints.opened(replay.settings(live)) as opened:
        replay = replay.saved(successor_query=opened.begin(settings.checkpoint))
    if not is_live and replay.has_own_rollouts:
        carry_demands_over(live, replay)
    return settings


def call_off(live: JobSettings, replay: Replay) -> Replay:
    """Take a switch back that has not taken over, so that the replay may go on writing facts.

    Raises:
        ReplayError: a successor has continued its facts, or has begun to take over.
    """
    if not replay.live_query or not replay.settings(live).merchant_facts:
        return replay
    query, successor = writers(live)
    if replay.is_spent or query != replay.live_query:
        raise _spent(replay)
    if successor:
        raise ReplayError(f"the switch to {replay.name}, or the way back, was not finished; repeat it")
    with checkpoints.opened(replay.settings(live)) as opened:
        opened.remove(replay.successor(live).checkpoint)  # the next switch begins with the newer state
    return replay.saved(is_switched=False, successor_query="")


def _spent(replay: Replay) -> ReplayError:
    # the replay, or a successor that begins where it was stopped, would write those facts again
    return ReplayError(f"another job has continued the facts of {replay.name}; begin another replay")


def is_successors(live: JobSettings, replay: Replay, query: str) -> bool:
    """Return whether a query that writes the live output is that of the replay's successor.

    If an older release has made the switch, its checkpoint tells. Without that it cannot be told: then any
    query but the former live job's may be.
    """
    if replay.successor_query:
        return query == replay.successor_query
    with checkpoints.opened(replay.settings(live)) as opened:
        own = opened.query_id(replay.successor(live).checkpoint)
    return query == own if own is not None else query != replay.live_query


def begin_back(live: JobSettings, replay: Replay) -> JobSettings:
    """Note the way back in the record; return the settings of the job to run.

    Raises:
        ReplayError: there was no switch, or another job has taken the live output over since.
    """
    if not replay.live_query:
        raise ReplayError(f"there was no switch to {replay.name}, so there is no way back")
    if live.merchant_facts:
        raise ReplayError(
            "the former job kept merchant facts, which others have continued; only a new replay can take over"
        )
    query, successor = writers(live)
    # the switch may have been killed after its claims, and before its seam
    other = query if query != replay.live_query else successor
    if other and not is_successors(live, replay, other):
        raise ReplayError(
            f"the live output is of query {other}, which is that of another job than {replay.name}'s: the "
            "former live job would take it over with an old state; drop the replay with --end-way-back"
        )
    replay.saved(is_switched=False, is_spent=replay.is_spent or query != replay.live_query)
    return live.model_copy(update={"predecessor": other})


def become(replay_release: str, settings: JobSettings) -> None:
    """Replace this process by the job; it does not return."""
    command = running.command(replay_release)
    os.execvpe(command[0], command, {**os.environ, **settings.variables()})


def to_keep(settings: JobSettings, live: JobSettings) -> dict[str, str]:
    """Return the variables that have to become the installation's: the job's, and the sidecar's."""
    after = settings.model_copy(update={"predecessor": "", "predecessor_checkpoint": ""}).variables()
    before = live.variables()
    return {name: value for name, value in after.items() if value != before[name]}


def _positions(records: Mapping[int, Mapping[str, Any]]) -> list[Offsets]:
    return [last_record.positions(record) for record in records.values()]


def _ahead(state: list[Offsets], output: list[Offsets]) -> str:
    """Return the inputs in which a state may be ahead of an output, as text; of tables the slowest counts."""
    ends: Offsets = {}
    for positions in output:
        for tp, end in positions.items():
            ends[tp] = min(end, ends.get(tp, end))
    ahead = {
        f"{tp[0]}-{tp[1]}" for positions in state for tp, end in positions.items() if end > ends.get(tp, end)
    }
    return ", ".join(sorted(ahead))
