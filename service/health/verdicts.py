"""Verdicts on an input partition, from a sliding window of samples of its offsets. Pure.

The rules are those of LinkedIn's Burrow (its wiki page "Consumer Lag Evaluation Rules"; the names in
brackets are from its `evaluator/caching.go`). They need no threshold for the number of records: a verdict
depends on how position and lag move. Burrow's window consists of a consumer's commits; ours consists of
samples of the committed offsets, a few seconds apart.

- If the lag is zero now, the partition is not in error. Here, REWIND and BLOCKED are exceptions, and so is a
  log that ends before the committed offset (STOP), which Burrow takes for a lag of zero.
- STOP (`checkIfOffsetsStopped`): records wait, and the consumer has stopped committing.
- STALL (`checkIfOffsetsStalled`): the consumer commits, the offset stays, the lag is never zero.
- REWIND (`checkIfOffsetsRewind`): the offset went back between two samples.
- WARN (`checkIfLagNotDecreasing`): offsets advance, the lag decreases nowhere in the window.

Differences from Burrow:

- Burrow calls a slow topic stopped the moment a record arrives, because the last commit is old by then. Since
  linkedin/Burrow #338, it does not if the lag was zero at a recent query of the end offset
  (`checkIfRecentLagZero`). Here a commit is due only once a record waits: the time runs from the last commit
  or the start of the wait, whichever is later.
- Burrow's limit of STOP is the time that its window of ten commits spans, so it depends on how often a
  consumer commits. Here limits are learned from measured times (module `limits`).
- Burrow does not see a rewind if the lag was zero anywhere in the window, as it is for a healthy consumer
  before an offset reset. Here a rewind is detected at every lag.
- Burrow warns if the lag is one record at each commit, although that is normal in a steady stream. Here the
  oldest record must also have waited for longer than usual.
- In Burrow, one dip of a growing lag suppresses the warning. Here the age of the oldest record is used
  instead of the lag, if that age is known.

Burrow has neither IDLE (no records wait and none arrive) nor BLOCKED (the waiting records are held back by a
producer's open transaction, so no read_committed consumer gets them).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from service.health.codes import REGISTRY, Verdict

FEWEST = 3
"""Minimum of samples for a trend."""
TREND = 10
"""Maximum number of samples in a trend; Burrow's window has as many commits."""


@dataclass(frozen=True)
class PartitionSample:
    """State of a partition at one moment; times are seconds since 1970-01-01 UTC."""

    at_s: float
    position: int | None
    """Offset that the job reads next; None before its first commit, and for a table until all key groups have
    written progress."""
    lag: int
    """Number of records that the job could have processed and has not."""
    held: int
    """Number of records that wait for a producer to end its transaction."""
    waiting_since_s: float | None = None
    """Arrival of the oldest unprocessed record; None without one, or if unknown."""
    committed_at_s: float | None = None
    """Newest commit of the partition's key group; for a table, the oldest of all groups' newest commits."""
    active_at_s: float | None = None
    """Last time at which the job read a new record of the partition."""
    loading: bool = False
    """Whether a key group that reads the partition loads its tables; their positions may then go back."""
    behind_transactions: bool = False
    """Whether the waiting records are labels, and a transaction that arrived before them waits: they have to
    wait for its decision, however long that takes. It has a verdict of its own."""
    lost: int = 0
    """Number of offsets that the job has read and the log no longer has."""

    @property
    def is_due(self) -> bool:
        """Whether records wait that the job should process now."""
        return self.lag > 0 and not self.behind_transactions


@dataclass(frozen=True)
class Limits:
    """Longest normal times, seconds."""

    commit_s: float
    """Time without a commit, or at the same position, while records wait."""
    latency_s: float
    """Time from a record's arrival to its commit."""
    held_s: float
    """Time until a producer ends a transaction."""
    idle_s: float
    """Time without records, after which a partition is idle."""


@dataclass(frozen=True)
class PartitionFinding:
    """The code of the verdict on a partition, with its reason and onset."""

    code: str
    """Name in the registry of codes."""
    detail: str
    """Explanation with numbers, for people."""
    since_s: float
    """Onset, seconds since 1970-01-01 UTC."""

    @property
    def verdict(self) -> Verdict:
        """The code's verdict."""
        return REGISTRY[self.code].verdict


def evaluate(window: Sequence[PartitionSample], limits: Limits) -> PartitionFinding:
    """Judge a partition as of its last sample.

    Args:
        window: samples in order of time, at least one.
    """
    sample = window[-1]
    now = sample.at_s
    # twice, because a new leader may report too low an end for a moment
    if sample.lost and len(window) > 1 and window[-2].lost:
        since = _trailing(window, lambda seen: seen.lost > 0)[0].at_s
        words = f"the job has read {sample.lost} offsets that the log lost; new records get them again"
        return PartitionFinding("log_behind_output", words, since)
    fell_at = _fell_at(window)
    if fell_at is not None:
        before = max(earlier.position or 0 for earlier in window if earlier.at_s < fell_at)
        return PartitionFinding(
            "position_went_back", f"went back from offset {before}; now {sample.position}", fell_at
        )
    if sample.lag == 0:
        return _without_lag(window, limits)
    if sample.behind_transactions:
        first = _trailing(window, lambda seen: seen.behind_transactions)[0]
        waits = f"{sample.lag} labels wait until the transactions that arrived before them are decided"
        return PartitionFinding("waiting_for_transactions", waits, first.at_s)
    run = _trailing(window, lambda seen: seen.is_due)
    waiting = _waiting_since(run)
    if len(run) < len(window) and window[-len(run) - 1].behind_transactions:
        waiting = max(waiting, run[0].at_s)  # the records have become due only now
    waits = f"{sample.lag} records wait, the oldest for {now - waiting:.0f} s"
    if sample.loading:
        return PartitionFinding("loading_tables", waits, next(seen.at_s for seen in run if seen.loading))
    if sample.position is None and sample.committed_at_s is None:
        if now - waiting > limits.commit_s:
            return PartitionFinding("never_committed", f"{waits}; nothing has ever been committed", waiting)
        return PartitionFinding("keeping_up", waits, waiting)
    if sample.committed_at_s is not None:
        due = max(sample.committed_at_s, waiting)
        if now - due > limits.commit_s:
            silent = f"no commit for {now - sample.committed_at_s:.0f} s (limit {limits.commit_s:.0f} s)"
            return PartitionFinding("no_commits", f"{waits}; {silent}", due)
    stayed = _stayed_since(run, waiting)
    if now - stayed > limits.commit_s:
        still = f"at offset {sample.position} for {now - stayed:.0f} s (limit {limits.commit_s:.0f} s)"
        return PartitionFinding("not_moving", f"{waits}; {still}", stayed)
    if now - waiting > limits.latency_s:
        slow = f"{waits} (limit {limits.latency_s:.1f} s)"
        worse = len(run) >= FEWEST and _is_not_shrinking(run[-TREND:])
        return PartitionFinding("falling_behind" if worse else "catching_up", slow, run[0].at_s)
    return PartitionFinding("keeping_up", waits, run[0].at_s)


def _fell_at(window: Sequence[PartitionSample]) -> float | None:
    """Return when the position last went back; None if it never did."""
    fell: float | None = None
    previous: int | None = None
    for sample in window:
        if sample.loading or sample.position is None:
            previous = None  # tables are read again from the state's position
            continue
        if previous is not None and sample.position < previous:
            fell = sample.at_s
        previous = sample.position
    return fell


def _without_lag(window: Sequence[PartitionSample], limits: Limits) -> PartitionFinding:
    sample = window[-1]
    now = sample.at_s
    if sample.held:
        first = _trailing(window, lambda seen: seen.held > 0 and seen.lag == 0)[0]
        since = min(first.at_s, sample.waiting_since_s or first.at_s)
        held = f"{sample.held} records have been held back for {now - since:.0f} s"
        if now - since > limits.held_s:
            return PartitionFinding("open_transaction", f"{held} (limit {limits.held_s:.0f} s)", since)
        return PartitionFinding("keeping_up", held, since)
    unchanged = (sample.position, 0, 0)
    first = _trailing(window, lambda seen: (seen.position, seen.lag, seen.held) == unchanged)[0]
    quiet = min(first.at_s, sample.active_at_s) if sample.active_at_s is not None else first.at_s
    if now - quiet > limits.idle_s:
        return PartitionFinding("idle", f"nothing has come for {now - quiet:.0f} s", quiet)
    first = _trailing(window, lambda seen: seen.lag == 0 and seen.held == 0)[0]
    return PartitionFinding("keeping_up", "nothing waits", first.at_s)


def _trailing(
    window: Sequence[PartitionSample], fits: Callable[[PartitionSample], bool]
) -> Sequence[PartitionSample]:
    """Return the longest tail of a window in which every sample fits; the last sample is always included."""
    start = len(window) - 1
    while start > 0 and fits(window[start - 1]):
        start -= 1
    return window[start:]


def _waiting_since(run: Sequence[PartitionSample]) -> float:
    """Return the arrival of the oldest waiting record; if unknown, the time of the first sample at a lag."""
    arrival = run[-1].waiting_since_s
    return min(arrival, run[-1].at_s) if arrival is not None else run[0].at_s


def _stayed_since(run: Sequence[PartitionSample], waiting: float) -> float:
    """Return since when the position has not moved while records waited."""
    last = run[-1]
    seen = _trailing(run, lambda sample: sample.position == last.position)[0].at_s
    if last.active_at_s is None:
        return seen
    # soon after its start the sidecar has few samples; active_at_s, from the job, reaches further back
    return min(seen, max(last.active_at_s, waiting))


def _is_not_shrinking(run: Sequence[PartitionSample]) -> bool:
    """Return whether the oldest record's age has not decreased; if unknown, whether the lag never fell."""
    first, last = run[0], run[-1]
    if first.waiting_since_s is not None and last.waiting_since_s is not None:
        return last.at_s - last.waiting_since_s >= first.at_s - first.waiting_since_s
    return all(later.lag >= earlier.lag for earlier, later in pairwise(run))
