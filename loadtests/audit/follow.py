"""The continuous audit behind `fraud verify --follow`: audits a sample of the cards, a minute behind the job.

A step reads in the same order as `verify`: progress records, which determine the settled point (`settled`);
all new outputs; the tables as far as the job had read them at that point; the transactions up to that point.
Output records that the oracle expects are compared and removed; the remaining ones are unexpected.
"""

import logging
import time
from collections.abc import Callable, Sequence

from feature_store.errors import FraudError
from loadtests.audit.comparison import output_topics
from loadtests.audit.content import content_of
from loadtests.audit.core import AuditCore, Load, partition_ends
from loadtests.audit.memory import Memory
from loadtests.audit.moves import Stretch, drained_by, split
from loadtests.audit.settled import MOST_POINTS, Point, reaches
from loadtests.audit.topic_log import Log
from loadtests.oracle import Kind, Record
from streaming_job.log.records import PartitionId
from streaming_job.settings import JobSettings

logger = logging.getLogger(__name__)


class FollowError(FraudError):
    """Transactions that a continuous audit has to read are gone, or have moved to other partitions.

    Continue from a `--state` of an audit that has read them, give `--archive`, or increase the topic's
    retention; after a move audit with `fraud verify`.
    """


class ContinuousAudit:
    """Audits the job's output since the last step; a restarted audit needs only `memory`.

    Args:
        memory: state after the previous steps; updated in place.
        clock: returns the time, seconds since 1970-01-01 UTC; it is noted with each point of the job's
            progress and with the end offsets of the transactions.
    """

    def __init__(
        self,
        log: Log,
        settings: JobSettings,
        load: Load,
        memory: Memory,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._topics, self._clock = log, settings.topics, clock
        self.memory = memory
        self._core = AuditCore(log, settings, load, memory)
        self.findings = self._core.findings
        """Findings since this follower was created."""
        self.checked = 0
        """Transactions judged since this follower was created, except refused ones and those that
        arrived before `memory.complete_from_ms`."""
        self.point: Point | None = None
        """Settled point of the last completed step."""
        self.audited_until_s = 0.0
        """Arrivals up to this time were audited, seconds since 1970-01-01 UTC; 0: none yet."""
        self._arrived: list[tuple[float, dict[PartitionId, int]]] = []
        """(time, ends of the transactions at that time), for the times that the audit has not reached yet."""
        self._require_whole_log()

    def _require_whole_log(self) -> None:
        """Check that no unjudged transaction was deleted; find from which arrival on outputs are complete."""
        memory, topics = self.memory, self._topics
        for partition, first in self._log.beginnings(topics.transactions).items():
            position = memory.positions.get((topics.transactions, partition), 0)
            if first > position:
                raise FollowError(
                    f"{topics.transactions}[{partition}] begins at {first}, the audit is at {position}: "
                    "transactions in between were deleted; continue from a --state of an audit that read "
                    "them, or give --archive"
                )
        if memory.positions:
            return
        for topic in output_topics(topics):
            cut = {p: first for p, first in self._log.beginnings(topic).items() if first}
            ends = {partition: first + 1 for partition, first in cut.items()}
            for record in self._log.read(topic, ends, cut) if cut else ():
                memory.complete_from_ms = max(memory.complete_from_ms, record.timestamp)

    def step(self, after_chunk: Callable[[], None] = lambda: None) -> None:
        """Audit up to the newest settled point.

        Args:
            after_chunk: called after each chunk of transactions.

        Raises:
            FollowError: transactions were deleted before they were judged.
        """
        core, memory, now = self._core, self.memory, self._clock()
        self._require_whole_log()
        topic = self._topics.transactions
        self._arrived.append((now, {(topic, p): end for p, end in self._log.ends(topic).items()}))
        if len(self._arrived) > MOST_POINTS:
            del self._arrived[::2]
        self._read_progress()
        memory.points.mark(now)
        point = memory.points.settled(now)
        if point is None:
            return
        core.read_outputs()
        self._read_progress()  # so that no output is of rollouts that are unknown here
        seams = memory.points.seams.in_order()
        core.follow_rollouts(seams)
        whole = Stretch(core.layout, {}, partition_ends(point.transactions, topic))
        parts = split([whole], [], seams)
        left = [part for part in parts if core.is_left(part)]
        self._begin_again_if_switched(left)
        core.compare(core.read_tables(point.furthest, seams[-1].losses))
        for judged in core.judge(parts):
            core.compare(judged.outcomes)
            core.drop_trials()
            self.checked += judged.kinds.total() - judged.kinds[Kind.DEAD_LETTER]
            after_chunk()
        partitions = {(topic, p): 0 for p in range(core.layout.partitions)}
        partitions |= {(line, 0): 0 for line in memory.histories}
        memory.positions |= point.transactions
        for part in left[-1:]:
            for line, history in memory.histories.items():
                if line != core.line_of(part):
                    history.drop()
        memory.found.finish(partitions | point.furthest | point.transactions)
        core.refuse_absent()
        memory.forget()
        self.point = point
        while self._arrived and reaches(memory.positions, self._arrived[0][1]):
            self.audited_until_s, _ = self._arrived.pop(0)

    def _read_progress(self) -> None:
        for record in self._core.read_progress():
            _require_same_layout(record)
            self.memory.points.add(record)

    def _begin_again_if_switched(self, parts: Sequence[Stretch]) -> None:
        """Prepare for rollouts that have not decided aloud yet: silently they have decided all of the log."""
        topic, core, memory = self._topics.transactions, self._core, self.memory
        for part in parts:
            line = core.line_of(part)
            reached = memory.histories[line].positions
            is_behind = any(
                position > reached.get(place, 0)
                for place, position in memory.positions.items()
                if place[0] == topic
            )
            if not is_behind:
                continue
            for partition, first in self._log.beginnings(topic).items():
                if first > (position := reached.get((topic, partition), 0)):
                    raise FollowError(
                        f"the job was switched to the rollouts of {line}, which have decided the log from "
                        f"its beginning, and {topic}[{partition}] begins at {first}: transactions from "
                        f"{position} on were deleted; give --archive"
                    )
            if not reached:
                logger.warning("the job was switched to the rollouts of %s: the log is read again", line)
                core.begin_again()
                return


def _require_same_layout(record: Record) -> None:
    """Raise FollowError at the seam with which a takeover moves the cards; malformed records are ignored."""
    try:
        move = drained_by(content_of(record.value))
    except (ValueError, KeyError, TypeError):
        return
    if move is not None:
        raise FollowError(
            f"the transactions have left {move.layout} (job-progress[{record.partition}] offset "
            f"{record.offset}), and a continuous audit does not follow cards to other partitions; audit with "
            "`fraud verify`"
        )
