"""A log with labels drawn at random, and the job's key groups over it, with their merchant facts."""

import json
import random
from collections.abc import Iterator

from harness.job_world import World
from harness.log_world import DAY, HOUR, MINUTE, SECOND
from harness.memory_job import FACTS, MemoryJob
from harness.memory_log import Fate, KilledError, MemoryLog
from loadtests.oracle import Record
from streaming_job.facts.clock import hour_of
from streaming_job.facts.table import MerchantRules
from streaming_job.group.rules import Rules


def labelled_world(seed: int, n: int, partitions: int, *, cards: int = 6, merchants: int = 3) -> World:
    """A log in which each accepted transaction is an alert.

    After a rollout and a profile it has `n` records, 5 hours apart on average (3 minutes if `seed` is even).
    Labels follow their transactions soon or late; some are reversed, broken or of no transaction, and some
    transactions are repeated.
    """
    rng = random.Random(seed)
    world = World(rollout=False, partitions=partitions)
    world.rollout("all", -HOUR, threshold=0.0)
    world.profile("r", -HOUR, "c0", source={"snapshot": "last", "lsn": 1})
    steps = [SECOND, MINUTE, 20 * MINUTE, HOUR, 5 * HOUR, DAY] if seed % 2 else [0, SECOND, 10 * MINUTE]
    clock = 0
    for number in range(n):
        clock += rng.choice(steps)
        draw = rng.random()
        if draw < 0.25 and world.transactions:
            kinds = ("chargeback", "early_warning", "fraud", "fraud", "refund", "genuine", "reversal")
            world.label(rng.randrange(len(world.transactions)), clock, rng.choice(kinds))
        elif draw < 0.28 and world.transactions:
            world.label(rng.randrange(len(world.transactions)), clock, transaction_id="nobody's")
        elif draw < 0.31:
            world.raw_label(
                rng.choice([None, b"{", b"[]", b'{"card_id": "c1"}']), clock, rng.choice([b"c1", b"c2", None])
            )
        elif draw < 0.35 and world.transactions:
            again = rng.choice(world.transactions)
            world.raw_tx(again.value, clock, key=again.key, partition=again.partition)
        else:
            world.tx(
                clock - rng.choice([0, 0, SECOND, HOUR]),
                rng.choice([5.0, 10.0, 20.0, 500.0]),
                arrival=clock,
                card_id=f"c{rng.randrange(cards)}",
                merchant_id=f"m{rng.randrange(merchants)}",
                transaction_id=f"t{number}",
            )
    return world


class MemoryGroups:
    """All key groups of a job, over one log."""

    def __init__(self, rules: Rules, records: list[Record], fate: Fate) -> None:
        """Start before the first epoch.

        Args:
            rules: of the job.
            records: of all topics, in the order in which they are written (`memory_log.as_written`).
            fate: draws how many records a call returns, and kills processes.
        """
        self.log = MemoryLog(records, fate, own=[FACTS])
        groups = range(rules.key_groups.groups)
        self.jobs = [MemoryJob(group, rules, self.log, fate, goes_on=True) for group in groups]
        self._fate = fate

    def disturb(self, group: int, before: str | int | None, looks: int, last_call: int | None) -> None:
        """Run one epoch of a group, which may be moved, restored or killed.

        Args:
            group: number, modulo the number of groups.
            before: "another process", "another machine", the number of a checkpoint to restore, or None.
            looks: turns of the loop before the request for a cut.
            last_call: number of calls (`Fate.call`) before the one that kills the process; None: no kill.
        """
        job = self.jobs[group % len(self.jobs)]
        if before == "another process":
            job.lose_process()
        elif before == "another machine":
            job.lose_copy()
        elif before is not None:
            job.restore(int(before))
        self._fate.left = last_call
        try:
            job.epoch(looks)
        except KilledError:
            return
        finally:
            self._fate.left = None

    def finish(self) -> None:
        """Run all groups to the end of the log."""
        for _ in range(400):
            if all(job.is_done for job in self.jobs):
                return
            for job in self.jobs:
                job.epoch(looks=8)
        raise AssertionError("the groups wait for each other")

    def alerts(self) -> dict[tuple[int, int], bytes]:
        """All alerts, by partition and offset of their transactions."""
        result: dict[tuple[int, int], bytes] = {}
        for job in self.jobs:
            for value in job.output.values("fraud_alerts"):
                source = json.loads(value)["source"]
                assert (source["partition"], source["offset"]) not in result, "alerted twice"
                result[source["partition"], source["offset"]] = value
        return result

    def dead_letters(self) -> list[tuple[str, int, int, str]]:
        """Topic, partition, offset and reason of each dead letter, sorted."""
        return sorted(_letters(self.jobs))

    def facts(self) -> list[dict[str, object]]:
        """All facts on the log except promises."""
        written = [json.loads(value) for job in self.jobs for value in job.output.values("merchant_facts")]
        return [fact for fact in written if fact["kind"] != "promise"]

    def reports(self) -> list[str]:
        """All facts of the kind `report`, as JSON, sorted."""
        return sorted(json.dumps(fact) for fact in self.facts() if fact["kind"] == "report")

    def hours_over(self) -> int:
        """First hour whose counts some group has not written yet."""
        promises = [
            [
                fact["until"]
                for fact in map(json.loads, job.output.values("merchant_facts"))
                if fact["kind"] == "promise"
            ]
            for job in self.jobs
        ]
        return min(hour_of(max(own)) if own else 0 for own in promises)


def _letters(jobs: list[MemoryJob]) -> Iterator[tuple[str, int, int, str]]:
    for job in jobs:
        for letter in map(json.loads, job.output.values("dead_letters")):
            yield letter["topic"], letter["partition"], letter["offset"], letter["reason"]


def merchant_rules(delay_ms: int = DAY) -> MerchantRules:
    """Rules of merchant facts of a job in memory."""
    return MerchantRules("card-fraud", delay_ms)
