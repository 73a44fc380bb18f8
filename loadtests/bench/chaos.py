"""Chaos benchmark: many kills and network faults, then one audit of everything."""

import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg

from deploy.local import stack
from deploy.local.errors import ProcessError
from loadtests.bench.measure import Figure, Result, settings_of
from loadtests.bench.rig import empty
from loadtests.faults import kills, proxy
from loadtests.faults.errors import FaultError
from loadtests.faults.installation import Installation
from loadtests.faults.proxy import HOST, Fault, Proxy
from loadtests.faults.relay import Relay
from loadtests.rig.report import Say
from loadtests.simulator import profiles
from loadtests.simulator.world import World
from streaming_job.contracts.topics import Topics

CARDS = 2_000
"""Number of cards: few, so that each is used often, but enough that none gets hot. A hot card's windows are
approximate; only exact windows show every lost or repeated transaction."""
KILLS_SHARE = 0.75
"""Share of `ChaosExtent.within_s` for kills; network faults get the rest."""
WRONG = "has to be 0"
TRANSACTION_TIMEOUT_MS = 10_000
"""Minimum that the job's settings allow; a network fault lasts at most this long."""


@dataclass(frozen=True)
class ChaosExtent:
    """Extent of a chaos run."""

    data_dir: Path
    """Directory of all data; emptied first."""
    kills: int
    faults: int
    """Number of network faults."""
    seed: int
    within_s: float
    """Time after which no further kill or fault begins, seconds; the audit follows."""


def measure(extent: ChaosExtent, say: Say) -> Iterator[Result]:
    """Yield the job's settings, the seconds of each kind of kill and fault, and the audit's counts."""
    empty(extent.data_dir)
    chance = random.Random(extent.seed)
    with ExitStack() as cleanup:
        cleanup.callback(stack.down, extent.data_dir)
        say("starting the servers")
        endpoints = stack.up(extent.data_dir, proxied=True)
        assert endpoints.proxied is not None
        network = cleanup.enter_context(Proxy(*endpoints.proxied))
        cards = World.create(extent.seed, CARDS)
        profiles.load(endpoints.postgres_dsn, cards)
        installed = Installation(
            endpoints,
            Topics(),
            extent.data_dir / "job",
            cards,
            bootstrap_servers=f"{HOST}:{endpoints.proxied[0]}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        yield settings_of(installed.settings)
        say("training the model")
        installed.roll_out()
        relay = Relay(installed)
        cleanup.callback(lambda: relay.job.kill())
        begun = time.monotonic()
        target = kills.KillTarget(relay, extent.data_dir, chance)
        yield from _kill(target, extent.kills, begun + KILLS_SHARE * extent.within_s, say)
        yield from _disturb(relay, network, chance, extent.faults, begun + extent.within_s, say)
        lasted = time.monotonic() - begun
        say("auditing")
        yield Figure("all kills and faults", lasted, "s")
        yield from _audit(relay, endpoints.postgres_dsn)


def _kill(target: kills.KillTarget, count: int, end: float, say: Say) -> Iterator[Figure]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for number, name in enumerate(kills.draw(target.chance, count), 1):
        if time.monotonic() > end:
            break
        say(f"kill {number} of {count}: {name}")
        begun = time.monotonic()
        try:
            kills.KILLS[name](target)
        except (FaultError, ProcessError) as fault:
            raise FaultError(f"kill {number}, {name}: {fault}") from fault
        seconds[name].append(time.monotonic() - begun)
        target.caught_up()
    yield from _all_seconds("kill", seconds)


def _disturb(
    relay: Relay, network: Proxy, chance: random.Random, count: int, end: float, say: Say
) -> Iterator[Figure]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for number, fault in enumerate(proxy.draw(chance, count, TRANSACTION_TIMEOUT_MS / 1000, proxy.OFTEN), 1):
        if time.monotonic() > end:
            break
        say(f"fault {number} of {count}: {fault}")
        begun, before = time.monotonic(), len(network.injected)
        network.arm(fault)
        relay.burst()
        relay.until(partial(_grown, network.injected, before), f"a request for {fault}")
        relay.installed.caught_up(relay.job)
        seconds[f"{fault.api.name.lower()}, {fault.kind}"].append(time.monotonic() - begun)
    yield from _all_seconds("fault", seconds)


def _grown(struck: list[Fault], before: int) -> bool:
    return len(struck) > before


def _all_seconds(event: str, seconds: dict[str, list[float]]) -> Iterator[Figure]:
    yield Figure(f"{event}s", sum(map(len, seconds.values())), "")
    for name, each in sorted(seconds.items()):
        yield Figure(
            f"{event}: {name}", statistics.median(each), "s", f"{len(each)} times", rounds=tuple(each)
        )


def _audit(relay: Relay, dsn: str) -> Iterator[Figure]:
    relay.installed.caught_up(relay.job)
    verdict = relay.installed.verdict()
    counts = verdict.report()
    yield Figure("jobs started", relay.started, "")
    for name in ("events", "alerts", "dead_letters"):
        yield Figure(name, counts[name], "records")
    for name in ("missing", "duplicated", "unexpected", "different"):
        yield Figure(name, counts[name], "records", WRONG)
    unread = relay.installed.sent - verdict.events
    yield Figure("not audited", unread, "records", WRONG)
    yield Figure("progress records that differ", len(verdict.problems), "commits", WRONG)
    yield Figure("profiles that did not arrive", _stale(relay.installed, dsn), "cards", WRONG)


def require_clean(figures: list[Figure]) -> None:
    """Raise FaultError if the audit found a difference."""
    wrong = {figure.name: figure.value for figure in figures if figure.detail == WRONG and figure.value}
    if wrong:
        raise FaultError(f"the audit found differences: {wrong}; run `fraud verify` for details")


def _stale(installed: Installation, dsn: str) -> int:
    """Count the cards whose last change on the profile topic differs from their row in Postgres."""
    newest: dict[str, tuple[str, float] | None] = {}
    for record in installed.read(installed.topics.profiles):
        after = json.loads(record.value)["after"] if record.value else None
        card = json.loads(record.key or b"")["card_id"]
        newest[card] = after and (after["status"], after["credit_limit"])
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select card_id, status, credit_limit from card_profiles").fetchall()
    return sum(newest.get(card) != (status, float(limit)) for card, status, limit in rows)
