"""Runs of `fraud simulate`: file, live traffic, backlog and replay, with progress and final counts."""

import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from feature_store.errors import FraudError
from feature_store.progress_bar import progress_bar
from loadtests.rig import histograms
from loadtests.rig.histograms import Slips
from loadtests.rig.pace import Pace
from loadtests.rig.send import Sender
from loadtests.simulator import destination, parquet, profiles
from loadtests.simulator.chargebacks import Chargebacks
from loadtests.simulator.churn import ProfileChurn, ProfileFeed
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.replay import Replay
from loadtests.simulator.scenarios import FraudMix
from loadtests.simulator.tally import Tally
from loadtests.simulator.timeline import Records, timeline
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from streaming_job import environment
from streaming_job.dead_letters.settings import LetterSettings

_out = Console(highlight=False, soft_wrap=True)
_err = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Limits:
    """Limits of a run; None: no limit."""

    seconds: float | None
    """Real time when sending, simulated time when writing a file."""
    events: int | None
    """Number of transactions."""


@dataclass(frozen=True)
class TrafficOptions:
    """Parameters of the simulated traffic."""

    seed: int
    cards: int
    merchants: int
    rate: float
    """Transactions per second."""
    fraud: FraudMix
    disturbances: Disturbances

    def world(self) -> World:
        """Create the world, with a status line."""
        with _err.status("making cards and merchants"):
            return World.create(self.seed, self.cards, self.merchants)

    def stream(self, world: World, start_ms: int) -> Stream:
        """Return the stream of transactions from a start time on."""
        return Stream(world, self.rate, start_ms, fraud=self.fraud, disturbances=self.disturbances)


def to_file(traffic: TrafficOptions, start_ms: int, path: Path, limits: Limits) -> None:
    """Write a Parquet file."""
    if limits.seconds is None and limits.events is None:
        raise FraudError("a file needs an end; give --events or --for (simulated time)")
    stream = traffic.stream(traffic.world(), start_ms)
    until_ms = start_ms + int(limits.seconds * 1_000) if limits.seconds is not None else None
    total = min(limits.events or float("inf"), (limits.seconds or float("inf")) * traffic.rate)
    tally = Tally()
    with progress_bar(_err) as bar:
        task = bar.add_task(f"writing {path}", total=total)
        batches = tally.watch(stream.blocks(events=limits.events, until_ms=until_ms))
        rows, left_out = parquet.write(batches, path, lambda n: bar.advance(task, n))
    tally.finish(rows + left_out)
    _out.print(
        f"wrote {rows:,} transactions to {path}; left out {left_out:,} malformed ones, which fit no columns"
    )
    _print_tally(tally)


def live(
    traffic: TrafficOptions,
    servers: str,
    limits: Limits,
    chargeback_delay_ms: int,
    postgres_dsn: str | None,
    profile_changes_per_s: float,
) -> None:
    """Send transactions and labels in real time; given Postgres, load profiles first, then change some."""
    sender, settings = _sender(servers)
    world = traffic.world()
    _load(world, postgres_dsn)
    start_ms = int(sender.clock.now_ms())
    changing = None
    if postgres_dsn is not None:
        churn = ProfileChurn(
            world, traffic.rate, start_ms, changes_per_s=profile_changes_per_s, fraud=traffic.fraud
        )
        changing = ProfileFeed(postgres_dsn, churn)
    stream = traffic.stream(world, start_ms)
    _simulate(stream, sender, settings, Pace.live(), limits, chargeback_delay_ms, changing)


def backlog(
    traffic: TrafficOptions, servers: str, limits: Limits, chargeback_delay_ms: int, postgres_dsn: str | None
) -> None:
    """Send the transactions and labels of a period that ends now, as fast as possible."""
    if limits.events is None:
        raise FraudError("--speed max needs --events, the number of transactions to send")
    sender, settings = _sender(servers)
    world = traffic.world()
    _load(world, postgres_dsn)
    # event times in the future would be refused
    start_ms = int((time.time() - limits.events / traffic.rate) * 1_000)
    stream = traffic.stream(world, start_ms)
    _simulate(stream, sender, settings, Pace.at_once(), limits, chargeback_delay_ms, None)


def replay(servers: str, source: Replay, speed: float, limits: Limits, chargeback_delay_ms: int) -> None:
    """Send a file with its own timestamps, and each label `chargeback_delay_ms` after its transaction."""
    sender, settings = _sender(servers, archive_from_ms=source.first_ms)
    labels = Chargebacks(delay_ms=chargeback_delay_ms)
    records = timeline(source.batches(limits.events), labels, settings.topics, drain=True)
    pace = Pace(sender.clock.now_ms(), source.first_ms, speed)
    events = min(limits.events or source.rows, source.rows)
    _send(sender, settings, records, pace, Limits(limits.seconds, events), None)


def _sender(servers: str, *, archive_from_ms: int | None = None) -> tuple[Sender, LetterSettings]:
    settings = environment.settings(LetterSettings, bootstrap_servers=servers)
    destination.check(settings, [settings.topics.transactions, settings.topics.chargebacks], archive_from_ms)
    return Sender(settings, stamped=archive_from_ms is not None), settings


def _load(world: World, postgres_dsn: str | None) -> None:
    if postgres_dsn is not None:
        with _err.status("loading profiles"):
            loaded = profiles.load(postgres_dsn, world)
        _out.print(f"profiles {loaded.rows:,}, of them written {loaded.written:,}")


def _simulate(
    stream: Stream,
    sender: Sender,
    settings: LetterSettings,
    pace: Pace,
    limits: Limits,
    chargeback_delay_ms: int,
    changing: ProfileFeed | None,
) -> None:
    labels = Chargebacks(
        stream.world.seed, delay_ms=chargeback_delay_ms, spread=0.5, fraud_share=0.95, genuine_share=0.001
    )
    tally = Tally()
    batches = tally.watch(stream.blocks(events=limits.events))
    records = timeline(batches, labels, settings.topics, drain=False)
    _send(sender, settings, records, pace, limits, changing)
    tally.finish(sender.sent[settings.topics.transactions])
    _print_tally(tally)


def _send(
    sender: Sender,
    settings: LetterSettings,
    records: Iterable[Records],
    pace: Pace,
    limits: Limits,
    changing: ProfileFeed | None,
) -> None:
    """Send until the records end, its time is over, or SIGINT or SIGTERM arrives, with a progress line."""
    started, slips, slip = time.monotonic(), Slips(), histograms.empty()
    handlers = {
        number: signal.signal(number, lambda *_: sender.stop()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        if changing is not None:
            changing.start()
        with progress_bar(_err) as bar:
            task = bar.add_task("sending events", total=limits.events)

            def show() -> None:
                slips.record_into(slip)
                behind = f", {sender.slip_ms / 1_000:.1f} s behind" if sender.slip_ms > 1_000 else ""
                sent = sender.sent[settings.topics.transactions]
                bar.update(task, completed=sent, description=f"sending events{behind}")
                if changing is not None:
                    changing.check()

            until_ms = sender.clock.now_ms() + 1_000 * (limits.seconds or float("inf"))
            sent = sender.send(records, pace, until_ms=until_ms, meanwhile=show, on_sent=slips.add)
        if changing is not None:
            changing.stop()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    elapsed = time.monotonic() - started
    parts = ", ".join(f"{topic} {count:,}" for topic, count in sorted(sent.items()))
    slips.record_into(slip)
    late = "".join(
        f"; {name} {ms:,.1f} ms late" for name, ms in histograms.percentiles_ms(slip, (50.0, 99.0)).items()
    )
    _out.print(
        f"sent {sent.total():,} records in {elapsed:.1f} s ({sent.total() / elapsed:,.0f}/s): {parts}{late}"
    )
    if changing is not None:
        _out.print(f"profile changes {changing.applied:,}")


def _print_tally(tally: Tally) -> None:
    for line in tally.lines():
        _out.print(line)
