"""What a start would do, told before anything is written: range, differences to expect, cost, refusals."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import TopicPartition

from deploy.replay import inputs, record
from deploy.replay.record import OWN, Replay
from feature_store.utc import time_of
from loadtests.audit.topic_log import TopicLog
from models.policy import Policy
from streaming_job.archive.followers import log_archive
from streaming_job.log import clients, follow
from streaming_job.runtime import lost_log
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import newest_records

CARD_IN_MEMORY, CARD_ON_DISK = 4_200, 1_000
"""Bytes of a card's state: in the working copy, and in the checkpoint (docs/measurements.md)."""
JOB_BYTES = 1_500 << 20
"""Memory of a job without its state: driver, Python processes and queues."""
DISK_RESERVE = 1 << 30
SAMPLE = 200
"""Newest records of a partition whose size is measured."""
RATE = 400_000.0
"""Transactions per second of a backlog on two free cores (docs/measurements.md); used before a replay of this
installation has been measured."""


@dataclass(frozen=True)
class Facts:
    """What a plan is made of."""

    first: Mapping[int, int]
    """First offset of each partition that the log still has, in the archive if it begins there."""
    ends: Mapping[int, int]
    record_bytes: float
    """Mean size of a transaction's record."""
    compacted_before: int | None
    """Arrival, ms, before which compaction may have removed profiles that transactions have seen;
    None: it has removed none."""
    cards: int
    """Cards in the live job's state."""
    free_disk: int
    free_memory: int
    rate: float
    is_measured: bool
    """Whether `rate` was measured by a replay of this installation."""
    has_release: bool = True
    """Whether the program of the release can be run; True if it is this one."""
    has_start: bool = True
    """Whether there is a checkpoint to begin with; True if none was asked for, or it is elsewhere."""
    foreign: Mapping[str, int] = field(default_factory=dict)
    """Offsets in topics that a new replay would write to."""
    archived: Mapping[int, int] = field(default_factory=dict)
    """Offset at which the archive of each partition ends."""
    gaps: Sequence[str] = ()
    """What is missing between archive and topics, or in the archive."""
    taken: Sequence[str] = ()
    """Checkpoints of other replays that would be this one's, too."""
    has_moved: bool = False
    """Whether cards have come from other partitions or another topic, so their history is not here."""


@dataclass(frozen=True)
class ReplayPlan:
    """A plan, and why it cannot be carried out."""

    lines: tuple[str, ...]
    refusals: tuple[str, ...]
    is_partial: bool
    """Whether the range has lost its beginning."""


def gather(live: JobSettings, replay: Replay) -> Facts:
    """Look up what a plan depends on, without writing anything."""
    log, topic = TopicLog(live.bootstrap_servers, live.kafka), live.topics.transactions
    # those that the replay has for itself do not exist yet
    shared = {*replay.changed_facts(live).tables, topic} & {*replay.settings(live).tables, topic}
    begun = {(name, part): first for name in shared for part, first in log.beginnings(name).items()}
    # not the replay's own settings: its topics do not exist yet
    begins = live.model_copy(update={"log_archive": replay.archive})
    archive = log_archive(begins)
    gaps: list[str] = []
    archived: dict[int, int] = {}
    archived_from: list[int] = []
    if archive is not None:
        gaps, begun = list(archive.gaps(begun)), archive.first(begun)
        manifests = {part: archive.manifest((topic, part)) for name, part in begun if name == topic}
        archived = {part: manifest.end for part, manifest in manifests.items() if manifest is not None}
        archived_from = [
            span.least_ms for manifest in manifests.values() if manifest for span in manifest.files()
        ]
    others = [record.find(live.work_dir, name) for name in record.names(live.work_dir)]
    measured = [other.rate for other in others if other is not None and other.rate]
    reader = clients.reader(live, "fraud-replay")
    try:
        sizes = [
            len(message.value() or b"") + len(message.key() or b"")
            for part in log.ends(topic)
            for message in follow.newest(reader, TopicPartition(topic, part), SAMPLE)
        ]
        firsts = (
            follow.first_arrival(reader, TopicPartition(topic, part, first))
            for part, first in log.beginnings(topic).items()
        )
        oldest = min([*archived_from, *(first for first in firsts if first is not None)], default=0)
    finally:
        reader.close()
    compacted_before, newest = lost_log.find(begins).profiles_before, newest_records(live).values()
    return Facts(
        {part: first for (name, part), first in begun.items() if name == topic},
        log.ends(topic),
        sum(sizes) / max(1, len(sizes)),
        compacted_before if compacted_before is not None and oldest < compacted_before else None,
        sum(group["state"]["cards"] for group in newest),
        shutil.disk_usage(existing(live.work_dir)).free,
        int(psutil.virtual_memory().available),
        measured[-1] if measured else RATE,
        bool(measured),
        not replay.release or shutil.which(replay.release) is not None,
        "://" in replay.start_from or not replay.start_from or Path(replay.start_from, "commits").is_dir(),
        inputs.foreign(live, replay),
        archived,
        gaps,
        sorted(
            place
            for other in others
            if other
            for place in replay.checkpoints & {other.checkpoint, *other.checkpoints}
        ),
        any(group.get("takeover", {}).get("moved", False) for group in newest),
    )


def existing(place: Path) -> Path:
    """Return the nearest directory above a place, or itself, that exists."""
    return next(path for path in (place, *place.absolute().parents) if path.is_dir())


def made(live: JobSettings, replay: Replay, facts: Facts, *, partial: bool) -> ReplayPlan:
    """Make the plan. Pure.

    Args:
        partial: whether a log that has lost its beginning is accepted.
    """
    settings = replay.settings(live)
    records = sum(end - facts.first.get(part, 0) for part, end in facts.ends.items())
    disk = facts.cards * (CARD_IN_MEMORY + CARD_ON_DISK)
    memory = JOB_BYTES + facts.cards * CARD_IN_MEMORY
    offsets = ", ".join(
        f"{part}: {facts.first[part]:,} to {end:,}" for part, end in sorted(facts.ends.items())
    )
    cut = {} if replay.start_from else {part: first for part, first in facts.first.items() if first > 0}
    has_moved = facts.has_moved and not replay.start_from
    lines = [
        f"range: {records:,} transactions of {live.topics.transactions}, by partition {offsets}",
        *_archived(replay, facts),
        f"state: {_beginning(replay)}",
        f"decides: {_decides(replay)}",
        f"writes: {', '.join(getattr(settings.topics, name) for name in OWN)}; job id {settings.job_id}",
        f"reads: {records * facts.record_bytes / 1e6:,.0f} MB of transactions",
        f"needs about {memory / 1e6:,.0f} MB of memory ({facts.free_memory / 1e6:,.0f} are free) and "
        f"{disk / 1e6:,.0f} MB of disk beside its topics ({facts.free_disk / 1e6:,.0f} are free)",
        f"takes about {inputs.seconds(records, facts.rate):,.0f} s and a start, at {facts.rate:,.0f}/s ("
        + ("measured by a replay here)" if facts.is_measured else "measured on two free cores elsewhere)"),
        *_differences(cut, facts, has_moved=has_moved),
    ]
    if settings.merchant_facts:
        lines.append(_merchants(live, replay))
    refusals = []
    if replay.archive and not any(facts.archived.values()):
        refusals.append(f"{replay.archive} has nothing of {live.topics.transactions}; give another --archive")
    if facts.gaps:
        refusals.append(
            f"the log is not whole: {'; '.join(facts.gaps)}; restore the archive from a copy, or leave "
            "--archive out"
        )
    if settings.merchant_facts and replay.start_from:
        refusals.append("the state of a job with merchant facts cannot be inherited; omit --from")
    if cut and not partial:
        refusals.append(
            f"the beginning of the range is lost (partitions {', '.join(map(str, sorted(cut)))}), so "
            "decisions will differ without a change; give --archive if it was archived, or --partial to "
            "accept that"
        )
    if has_moved and not partial:
        refusals.append(
            "the cards have moved from other partitions or another topic, where their history is, so "
            "decisions will differ without a change; give --from with a copy of the live checkpoint, "
            "or --partial to accept that"
        )
    if replay.release and not facts.has_release:
        refusals.append(f"there is no program {replay.release}; give the path of a release's `fraud`")
    if not facts.has_start:
        refusals.append(
            f"{replay.start_from} has no saved state; give a copy of a checkpoint of the live job"
        )
    if not records:
        refusals.append("there are no transactions to replay; check FRAUD_TOPICS__TRANSACTIONS")
    if facts.foreign:
        written = ", ".join(f"{topic} ({offsets} offsets)" for topic, offsets in facts.foreign.items())
        refusals.append(
            f"{written} have records of something else, or of a switch, by which audits judge; choose "
            "another name"
        )
    if facts.taken:
        refusals.append(f"{', '.join(facts.taken)} is of another replay; choose another name")
    if facts.free_disk < disk + DISK_RESERVE:
        refusals.append(
            f"{facts.free_disk / 1e6:,.0f} MB are free on the disk of {live.work_dir}, "
            f"{(disk + DISK_RESERVE) / 1e6:,.0f} are needed; free some, or give another FRAUD_WORK_DIR"
        )
    if facts.free_memory < memory:
        refusals.append(
            f"{facts.free_memory / 1e6:,.0f} MB of memory are free, {memory / 1e6:,.0f} are needed; run the "
            "replay on another machine"
        )
    return ReplayPlan(tuple(lines), tuple(refusals), bool(cut) or has_moved)


def _merchants(live: JobSettings, replay: Replay) -> str:
    """Tell what a switch to a replay with merchant facts means."""
    begins = "labels before a switch that match no transaction are dead letters of the replay only"
    if live.merchant_facts:
        return f"merchant facts: a switch to it has no way back but by another replay; {begins}"
    return (
        f"merchant facts: kept by the replay, not by the live job; {begins}; rollouts that the live job has "
        "refused because it does not compute features of merchants decide in the replay"
    )


def _archived(replay: Replay, facts: Facts) -> list[str]:
    if not replay.archive:
        return []
    ends = ", ".join(f"{part}: before {end:,}" for part, end in sorted(facts.archived.items()))
    return [f"archive: {replay.archive} has, by partition, {ends}; the rest is read from the topics"]


def _beginning(replay: Replay) -> str:
    if not replay.start_from:
        return "from the beginning of the log"
    return (
        f"from the newest epoch of {replay.start_from}, so the range begins where that ends; the start is "
        "refused if the log begins later"
    )


def _decides(replay: Replay) -> str:
    release = f", release {replay.release}" if replay.release else ""
    if replay.rollout is None:
        return f"the live rollouts, each from its arrival on{release}"
    model = replay.rollout["model"]
    policy = Policy.from_json(replay.rollout["policy"])
    return (
        f"{model['name']}/{model['version']} with threshold {policy.threshold:g} (policy "
        f"{policy.digest()[:12]}) for the whole range, without trials{release}"
    )


def _differences(cut: Mapping[int, int], facts: Facts, *, has_moved: bool) -> list[str]:
    lines = []
    if has_moved:
        lines.append(
            "may differ without a change: all features of cards that were used before they moved to these "
            "partitions; alerts do not say so"
        )
    if cut:
        lines.append(
            "may differ without a change: features without a window of cards with older transactions; for 37 "
            "days after the oldest record also the features over windows; until then alerts say history_cut"
        )
    if facts.compacted_before is not None:
        lines.append(
            "may differ without a change: decisions on transactions that arrived before "
            f"{time_of(facts.compacted_before)}, if compaction has removed their profile: it is unknown, or, "
            "with --from, an older one"
        )
    return lines or ["nothing differs but by what was changed"]
