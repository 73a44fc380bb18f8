"""Verdicts on an input partition, from a sliding window of looks at its offsets. Pure.

The rules are those of LinkedIn's Burrow (its wiki page "Consumer Lag Evaluation Rules"; the names in
brackets are of its `evaluator/caching.go`). No threshold for the number of records is needed: what counts
is how the position and the lag move. Burrow's window are a consumer's commits; ours are looks at what was
committed, a few seconds apart.

- *Lag is zero now*: never in error.
- STOP (`checkIfOffsetsStopped`): records wait, and the consumer commits no more.
- STALL (`checkIfOffsetsStalled`): the consumer commits, the offset stays, the lag is never zero.
- REWIND (`checkIfOffsetsRewind`): the offset went back between two looks.
- WARN (`checkIfLagNotDecreasing`): offsets advance, the lag decreases nowhere in the window.

Mended:

- Burrow calls a slow topic stopped the moment a record arrives, because the last commit is old by then
  (`checkIfRecentLagZero`, linkedin/Burrow #338, mends it by a number of looks). Here a commit is due only
  once a record waits: the time runs from the later of the two.
- Burrow's limit of STOP is the length of the window, so it depends on how often a consumer happens to
  commit. Here limits are measured times of what is waited for (`limits`).
- Burrow does not see a rewind if the lag was zero anywhere in the window, which is how a healthy consumer
  is before somebody resets its offsets. Here a rewind is one whatever the lag is.
- Burrow warns of a lag of one record at each look, which is what is under way in a steady stream. Here the
  oldest record must also have waited for longer than records do.
- A dip of the lag hides that it grows. Here the age of the oldest record tells, too, where it is known.

Burrow knows neither IDLE (nothing waits, nothing comes) nor BLOCKED (what waits is held back by a
producer's open transaction, and no consumer that reads committed records gets it).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from service.health.codes import REGISTRY, Verdict

FEWEST = 3
"""Looks without which a trend is none."""
TREND = 10
"""Looks that make a trend; Burrow's window has as many commits."""


@dataclass(frozen=True)
class Look:
    """What was seen of a partition at one moment; times are seconds since 1970-01-01 UTC."""

    at_s: float
    position: int | None
    """Offset that the job reads next; None before it committed any."""
    lag: int
    """Records that it could have processed and has not."""
    held: int
    """Records that wait for a producer to end its transaction."""
    waiting_since_s: float | None = None
    """Since when the oldest record not yet processed has been there; None without one, or if not known."""
    committed_at_s: float | None = None
    """Newest commit of the key group that reads it; of a table: of the one that is silent for longest."""
    active_at_s: float | None = None
    """When the job last found something new in it."""
    loading: bool = False
    """Whether a key group that reads it is loading its tables: positions in them begin anew then."""


@dataclass(frozen=True)
class Limits:
    """Seconds that may pass."""

    commit_s: float
    """Without a commit, or without progress, while records wait."""
    latency_s: float
    """From a record's arrival to its commit."""
    held_s: float
    """Until a producer ends a transaction."""
    idle_s: float
    """Without records, until a partition is called idle."""


@dataclass(frozen=True)
class Finding:
    """The verdict on a partition."""

    code: str
    """In the registry of codes."""
    detail: str
    """In words, with numbers."""
    since_s: float
    """When it began, seconds since 1970-01-01 UTC."""

    @property
    def verdict(self) -> Verdict:
        """That of the code."""
        return REGISTRY[self.code].verdict


def evaluate(window: Sequence[Look], limits: Limits) -> Finding:
    """Judge a partition as of its last look.

    Args:
        window: looks in the order of time, at least one.
        limits: what may take how long.
    """
    look = window[-1]
    now = look.at_s
    fell_at = _fell_at(window)
    if fell_at is not None:
        before = max(earlier.position or 0 for earlier in window if earlier.at_s < fell_at)
        return Finding("position_went_back", f"from {before} to below it; now {look.position}", fell_at)
    if look.lag == 0:
        return _without_lag(window, limits)
    run = _trailing(window, lambda seen: seen.lag > 0)
    waiting = _waiting_since(run)
    waits = f"{look.lag} records wait, the oldest for {now - waiting:.0f} s"
    if look.loading:
        return Finding("loading_tables", waits, next(seen.at_s for seen in run if seen.loading))
    if look.position is None and look.committed_at_s is None:
        if now - waiting > limits.commit_s:
            return Finding("never_committed", f"{waits}; nothing has ever been committed", waiting)
        return Finding("keeping_up", waits, waiting)
    if look.committed_at_s is not None:
        due = max(look.committed_at_s, waiting)
        if now - due > limits.commit_s:
            silent = f"no commit for {now - look.committed_at_s:.0f} s (limit {limits.commit_s:.0f} s)"
            return Finding("no_commits", f"{waits}; {silent}", due)
    stayed = _stayed_since(run, waiting)
    if now - stayed > limits.commit_s:
        still = f"at offset {look.position} for {now - stayed:.0f} s (limit {limits.commit_s:.0f} s)"
        return Finding("not_moving", f"{waits}; {still}", stayed)
    if now - waiting > limits.latency_s:
        slow = f"{waits} (limit {limits.latency_s:.1f} s)"
        worse = len(run) >= FEWEST and _is_not_shrinking(run[-TREND:])
        return Finding("falling_behind" if worse else "catching_up", slow, run[0].at_s)
    return Finding("keeping_up", waits, run[0].at_s)


def _fell_at(window: Sequence[Look]) -> float | None:
    """When the position last went back; None if it never did."""
    fell: float | None = None
    known: int | None = None
    for look in window:
        if look.loading or look.position is None:
            known = None  # tables are read anew from the state's position on
            continue
        if known is not None and look.position < known:
            fell = look.at_s
        known = look.position
    return fell


def _without_lag(window: Sequence[Look], limits: Limits) -> Finding:
    look = window[-1]
    now = look.at_s
    if look.held:
        first = _trailing(window, lambda seen: seen.held > 0 and seen.lag == 0)[0]
        since = min(first.at_s, look.waiting_since_s or first.at_s)
        held = f"{look.held} records have been held back for {now - since:.0f} s"
        if now - since > limits.held_s:
            return Finding("open_transaction", f"{held} (limit {limits.held_s:.0f} s)", since)
        return Finding("keeping_up", held, since)
    place = (look.position, 0, 0)
    first = _trailing(window, lambda seen: (seen.position, seen.lag, seen.held) == place)[0]
    quiet = min(first.at_s, look.active_at_s) if look.active_at_s is not None else first.at_s
    if now - quiet > limits.idle_s:
        return Finding("idle", f"nothing has come for {now - quiet:.0f} s", quiet)
    first = _trailing(window, lambda seen: seen.lag == 0 and seen.held == 0)[0]
    return Finding("keeping_up", "nothing waits", first.at_s)


def _trailing(window: Sequence[Look], fits: Callable[[Look], bool]) -> Sequence[Look]:
    """The longest end of a window of which every look fits; the last one always does."""
    start = len(window) - 1
    while start > 0 and fits(window[start - 1]):
        start -= 1
    return window[start:]


def _waiting_since(run: Sequence[Look]) -> float:
    """Since when the oldest record has been waiting: by its own account, else since it was seen."""
    known = run[-1].waiting_since_s
    return min(known, run[-1].at_s) if known is not None else run[0].at_s


def _stayed_since(run: Sequence[Look], waiting: float) -> float:
    """Since when the position has been what it is, while records waited."""
    last = run[-1]
    seen = _trailing(run, lambda look: look.position == last.position)[0].at_s
    if last.active_at_s is None:
        return seen
    # a sidecar that has just started has not looked for long; the job's own account is older
    return min(seen, max(last.active_at_s, waiting))


def _is_not_shrinking(run: Sequence[Look]) -> bool:
    """Whether the lag decreased nowhere, or the oldest record is no younger than it was in the beginning."""
    first, last = run[0], run[-1]
    if first.waiting_since_s is not None and last.waiting_since_s is not None:
        return last.at_s - last.waiting_since_s >= first.at_s - first.waiting_since_s
    return all(later.lag >= earlier.lag for earlier, later in pairwise(run))
