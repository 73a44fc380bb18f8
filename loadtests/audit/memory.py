"""What a continuing audit remembers between its steps, in memory and in a file: of cards of its sample only.

By the sizes of its objects a kept transaction costs about 0.8 kB, a card 1 kB beside them. Kept are the
transactions of 38 days (those that a window can still reach), so share x transactions in 38 days x 0.8 kB is
what an audit needs.
"""

import io
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feature_store.errors import FraudError
from loadtests.audit.commits import Place
from loadtests.audit.comparison import Found, Settled
from loadtests.audit.findings import Findings
from loadtests.audit.settled import SettledPoints
from loadtests.oracle import ProfileLog, Record
from loadtests.oracle.card import DAY_MS, FORGET_AFTER_MS, MONTH_MS, REPEAT_MS, Card
from streaming_job.settings import JobSettings

VERSION = 1
KEEP_SETTLED_MS = 8 * DAY_MS
"""An alert that comes again is known as a second one for as long as this after its transaction."""
OURS = ("loadtests.", "models.policy", "models.registry", "streaming_job.contracts")
PLAIN = {
    ("collections", "Counter"),
    ("collections", "defaultdict"),
    ("builtins", "set"),
    ("builtins", "dict"),
}


class MemoryFileError(FraudError):
    """The file with what an earlier audit remembers is of no use."""


@dataclass
class Memory:
    """Everything that the next step needs of those before it."""

    job_id: str
    share: float
    lateness_ms: int
    points: SettledPoints
    found: Found
    settled: Settled
    positions: dict[Place, int] = field(default_factory=dict)
    """Next offset to read of each partition of every topic; of the transactions: to judge."""
    told_from_ms: int = 0
    """What arrived before only builds up the cards: alerts of that time are gone from the topics."""
    profiles: ProfileLog = field(default_factory=ProfileLog)
    rollouts: list[Record] = field(default_factory=list)
    """All records of the rollout topic so far."""
    unavailable: set[int] = field(default_factory=set)
    """Offsets of proposals whose models the job could not have."""
    cards: dict[str, Card] = field(default_factory=dict)
    arrivals: dict[Place, int] = field(default_factory=dict)
    """Newest arrival judged of each partition of the transactions, ms."""
    days: list[tuple[int, dict[Place, int]]] = field(default_factory=list)
    """Day (of arrival, since 1970) and where the audit stood when it began."""

    @classmethod
    def empty(cls, settings: JobSettings, share: float, behind_s: float) -> "Memory":
        """Nothing has been read."""
        topics, settled = settings.topics, Settled()
        points = SettledPoints(topics, settings.job_id, behind_s)
        found = Found(Findings(), topics, settled)
        return cls(settings.job_id, share, settings.allowed_lateness_ms, points, found, settled)

    def forget(self) -> None:
        """Drop, once a day of arrivals, what nothing that is still to come can ask for."""
        now = min(self.arrivals.values(), default=0)
        day = now // DAY_MS
        if not now or (self.days and self.days[-1][0] >= day):
            return
        self.days.append((day, {place: self.positions.get(place, 0) for place in self.arrivals}))
        while len(self.days) > 1 and self.days[1][0] * DAY_MS <= now - KEEP_SETTLED_MS:
            del self.days[0]
        if self.days[0][0] * DAY_MS <= now - KEEP_SETTLED_MS:
            self.settled.drop_before(self.days[0][1])
        # a day more than needed: arrivals of different partitions are not in step
        reach = MONTH_MS + max(self.lateness_ms, REPEAT_MS) + DAY_MS
        for card_id in [
            card_id for card_id, card in self.cards.items() if now - card.arrival > FORGET_AFTER_MS + DAY_MS
        ]:
            del self.cards[card_id]
        for card in self.cards.values():
            card.drop_before(card.arrival - reach)
        self.profiles.drop_before(now - reach)

    def save(self, path: Path) -> None:
        """Write everything into a file, at once or not at all, for this user's eyes only."""
        findings, self.found.findings = self.found.findings, Findings()
        try:
            blob = pickle.dumps((VERSION, self), protocol=5)
        finally:
            self.found.findings = findings
        new = path.with_name(f"{path.name}.new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    @classmethod
    def load(cls, path: Path, settings: JobSettings, share: float, behind_s: float) -> "Memory":
        """What an audit of the same job and sample has written.

        Raises:
            MemoryFileError: it is of another job, another sample, another version, or no such file.
        """
        try:
            version, memory = _Plain(io.BytesIO(path.read_bytes())).load()
        except Exception as fault:
            raise MemoryFileError(
                f"{path} cannot be read: {fault}; remove it to audit from the log"
            ) from fault
        if version != VERSION or not isinstance(memory, cls):
            raise MemoryFileError(f"{path} is of another release; remove it to audit from the log")
        said, now = (memory.job_id, memory.share), (settings.job_id, share)
        if said != now or memory.lateness_ms != settings.allowed_lateness_ms:
            raise MemoryFileError(
                f"{path} is of job {said[0]} with a share of {said[1]}, not of {now[0]} with {now[1]}, or "
                "its allowed lateness differs; give another file, or remove it to audit from the log"
            )
        memory.points.behind_s = behind_s
        return memory


class _Plain(pickle.Unpickler):
    """Makes only what an audit has written: a file from elsewhere cannot have anything else run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in PLAIN or (module.startswith(OURS) and "." not in name):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} does not belong there")
