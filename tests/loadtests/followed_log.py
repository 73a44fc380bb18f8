"""A log of many cards that a correct job writes commit by commit, for audits that follow it."""

import json
from collections.abc import Sequence
from itertools import pairwise

from audited_log import SETTINGS, TOPICS, MemoryLog, job_output
from harness.log_world import MINUTE
from oracle_world import World, load

from loadtests.audit.comparison import output_topics
from loadtests.audit.follow import ContinuousAudit
from loadtests.audit.memory import Memory
from loadtests.oracle import Record

BEHIND_S = 60.0


def world_of(amounts: Sequence[int], cards: int = 12) -> World:
    """A world with a transaction a minute; amounts from 500 on are alerts; 0 stands for invalid JSON."""
    world = World(threshold=0.5)
    for card in range(cards):
        world.profile("r", arrival=0, card=f"c{card}")
    for number, amount in enumerate(amounts):
        if amount == 0:
            world.raw_tx(b"{", arrival=number * MINUTE)
        else:
            world.tx(number * MINUTE, float(amount), card_id=f"c{number % cards}")
        if number % 7 == 3:
            world.profile("u", arrival=number * MINUTE + 1, card=f"c{number % cards}", risk_tier=2)
    return world


def places(record: Record) -> int:
    """Offset of an output record's transaction."""
    content = json.loads(record.value or b"")
    return int(content["offset"] if "offset" in content else content["source"]["offset"])


def renumbered(records: list[Record]) -> list[Record]:
    """Records with consecutive offsets."""
    return [record._replace(offset=number) for number, record in enumerate(records)]


class GrowingLog(MemoryLog):
    """A log that a job fills while it is read, with planned commits."""

    def __init__(self, world: World, ends: Sequence[int]) -> None:
        """Start with all inputs; outputs are added by commits that end at the given offsets."""
        done = job_output(world)
        self.planned = {name: renumbered(done.topics[name]) for name in output_topics(TOPICS)}
        super().__init__({name: list(records) for name, records in done.topics.items()}, done.group)
        for name in (*self.planned, "job-progress"):
            self.topics[name] = []
        self._ends, self._said = [0, *ends], 0
        (self._progress,) = done.topics["job-progress"]

    def commit(self) -> None:
        """Add the job's next Kafka transaction."""
        start, end = list(pairwise(self._ends))[self._said]
        self._said += 1
        for name, records in self.planned.items():
            for record in records:
                if start <= places(record) < end:
                    self.write(name, record)
        content = json.loads(self._progress.value or b"")
        content["partitions"][0] |= {"start_offset": start, "end_offset": end}
        value = json.dumps({**content, "commit_id": self._said}).encode()
        self.write("job-progress", self._progress._replace(value=value))

    @property
    def is_over(self) -> bool:
        """Whether all has been committed."""
        return self._said == len(self._ends) - 1

    def write(self, topic: str, record: Record) -> None:
        """Append a record."""
        self.topics[topic].append(record._replace(offset=len(self.topics[topic])))


class Clock:
    """A clock that is advanced by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Audited:
    """A follower (the continuing audit) and its clock."""

    def __init__(self, log: MemoryLog, share: float = 1.0, memory: Memory | None = None) -> None:
        self.clock, self.log = Clock(), log
        memory = memory or Memory.empty(SETTINGS, share, BEHIND_S)
        self.follower = ContinuousAudit(log, SETTINGS, load, memory, self.clock)

    def step(self, pass_s: float = 0.0) -> tuple[int, int, int, int]:
        """Run one step after `pass_s` seconds; returns counts: missing, duplicated, unexpected, different."""
        self.clock.now += pass_s
        self.follower.step()
        findings = self.follower.findings
        return findings.missing, findings.duplicated, findings.unexpected, findings.different

    def settle(self) -> tuple[int, int, int, int]:
        """Audit everything that was committed."""
        self.step()
        return self.step(BEHIND_S)
