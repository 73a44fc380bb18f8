"""How far a replay is."""

from typing import Any

import psutil

from deploy.local.processes import running as is_running
from deploy.replay import inputs
from deploy.replay.record import Replay
from deploy.replay.switching import is_successors, writers
from loadtests.audit.topic_log import TopicLog
from service.replays import progress
from streaming_job.progress.totals import Totals
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import newest_records


def look(replay: Replay, live: JobSettings) -> dict[str, Any]:
    """Return the state of a replay, as JSON values."""
    settings, log = replay.settings(live), TopicLog(live.bootstrap_servers, live.kafka)
    groups = newest_records(settings).values()
    totals = Totals.of_groups(Totals.from_json(group["totals"]) for group in groups)
    process = is_running(replay.server)
    shown = progress.read(replay.file.parent)
    return {
        "name": replay.name,
        "phase": "running" if process else "done" if replay.is_done else "stopped",
        "waits_for_live_job": process is not None and process.status() == psutil.STATUS_STOPPED,
        "remaining": inputs.remaining(inputs.decided(log, settings), replay.range),
        "per_s": shown.per_s if process and shown else 0.0,
        "seconds_left": shown.seconds_left if process and shown else None,
        "range": sum(replay.range.values()),
        "transactions": totals.counts["transactions"],
        "alerts": totals.counts["alerts"],
        "live_output": author_of_live_output(live, replay),
        "rollout": replay.rollout,
    }


def author_of_live_output(live: JobSettings, replay: Replay) -> str:
    """Return which job has written the live output last, in words."""
    query, _ = writers(live) if replay.live_query else ("", "")
    if query in ("", replay.live_query):
        return "live job"
    return "replay" if is_successors(live, replay, query) else "query " + query


def line(seen: dict[str, Any]) -> str:
    """Return the state as a line of text."""
    waits = ", waits for the live job" if seen["waits_for_live_job"] else ""
    left = seen["seconds_left"]
    speed = "" if left is None else f" at {seen['per_s']:,.0f}/s, about {left:,.0f} s"
    return (
        f"{seen['name']}: {seen['phase']}{waits}, {seen['remaining']:,} of {seen['range']:,} offsets to go"
        f"{speed}, {seen['transactions']:,} transactions, {seen['alerts']:,} alerts; the live output is of "
        f"the {seen['live_output']}"
    )
