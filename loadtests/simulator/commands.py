"""`fraud simulate`: send simulated or replayed traffic to Kafka, or write simulated traffic to Parquet."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from feature_store.errors import FraudError
from feature_store.option_groups import refuse_ignored
from feature_store.secret_options import from_environment, in_address
from loadtests import durations
from loadtests.simulator import runs
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.replay import Replay
from loadtests.simulator.runs import Limits, TrafficOptions
from loadtests.simulator.scenarios import FraudMix

app = typer.Typer()
_USUAL = Disturbances()
_feed, _world, _fault = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Source and destination", "The simulated world", "Shares of disturbed transactions, 0 to 1")
)
_START = datetime(2026, 1, 1)  # fixed, so that the same command gives the same file
_LIVE_DELAY, _REPLAY_DELAY = "2m", "7d"
_OF_SENDING = ("bootstrap_servers", "postgres_dsn", "profile_changes", "chargeback_delay", "speed")
_OF_SIMULATION = (
    "seed", "rate", "cards", "merchants", "fraud_share", "start", "postgres_dsn", "profile_changes", "late",
    "out_of_order", "future", "malformed", "duplicated",
)  # fmt: skip
"""Parameters that a replay has no use for."""


@app.command()
def simulate(
    context: typer.Context,
    seed: Annotated[int, _world(help="Same seed, same traffic.")] = 0,
    rate: Annotated[float, _world(help="Transactions per second.")] = 500.0,
    cards: Annotated[int, _world(help="Number of cards.")] = 50_000,
    merchants: Annotated[int, _world(help="Number of merchants.")] = 5_000,
    fraud_share: Annotated[float, _world(help="Share of fraud.")] = 0.01,
    start: Annotated[datetime, _world(help="Time of the first transaction in a file, UTC.")] = _START,
    length: Annotated[str | None, typer.Option("--for", help="Stop after this time: 60s, 5m, 2h.")] = None,
    events: Annotated[int | None, typer.Option(min=1, help="Stop after this many transactions.")] = None,
    speed: Annotated[
        str, typer.Option(help="Multiple of real time, or max; without --replay only 1 or max.")
    ] = "1",
    output: Annotated[Path | None, _feed(help="Write a Parquet file.")] = None,
    replay: Annotated[
        Path | None,
        _feed(help="Stream this Parquet file (columns: transaction contract or Fraud Detection Handbook)."),
    ] = None,
    bootstrap_servers: Annotated[
        str | None,
        _feed(envvar="FRAUD_BOOTSTRAP_SERVERS", help="Send to these brokers."),
    ] = None,
    postgres_dsn: Annotated[
        str | None,
        _feed(
            envvar="FRAUD_POSTGRES_DSN",
            help="Load and change profiles in this Postgres.",
            callback=from_environment("FRAUD_POSTGRES_DSN", in_address),
        ),
    ] = None,
    profile_changes: Annotated[
        float,
        _feed(min=0, help="Profile changes per second; none at --speed max."),
    ] = 2.0,
    chargeback_delay: Annotated[
        str | None,
        _feed(help="Time from payment to label; default 2m, in a replay 7d."),
    ] = None,
    late: Annotated[float, _fault(help="Minutes to weeks late.")] = _USUAL.late,
    out_of_order: Annotated[float, _fault(help="Up to 30 s late.")] = _USUAL.out_of_order,
    future: Annotated[float, _fault(help="Event time minutes to hours ahead.")] = _USUAL.future,
    malformed: Annotated[float, _fault(help="Malformed in one of 13 ways.")] = _USUAL.malformed,
    duplicated: Annotated[float, _fault(help="Sent twice.")] = _USUAL.duplicated,
) -> None:
    """Send labelled card traffic to Kafka, simulated or replayed, or write simulated traffic to Parquet.

    Example: fraud simulate --rate 100 --for 30s --output tx.parquet
    """
    limits = Limits(durations.seconds(length) if length is not None else None, events)
    factor = durations.speed(speed)
    if replay is not None:
        if output is not None:
            raise FraudError("--replay sends to Kafka; leave out --output")
        refuse_ignored(context, _OF_SIMULATION, "for simulated traffic; leave it out with --replay")
        delay_ms = int(durations.seconds(chargeback_delay or _REPLAY_DELAY) * 1_000)
        runs.replay(_servers(bootstrap_servers), Replay(replay), factor, limits, delay_ms)
        return
    disturbances = Disturbances(late, out_of_order, future, malformed, duplicated)
    traffic = TrafficOptions(seed, cards, merchants, rate, FraudMix(share=fraud_share), disturbances)
    if output is not None:
        refuse_ignored(context, _OF_SENDING, "for traffic that is sent; leave it out with --output")
        runs.to_file(
            traffic, int(start.replace(tzinfo=start.tzinfo or UTC).timestamp() * 1_000), output, limits
        )
        return
    servers = _servers(bootstrap_servers)
    refuse_ignored(context, ("start",), "for --output: what is sent begins now")
    delay_ms = int(durations.seconds(chargeback_delay or _LIVE_DELAY) * 1_000)
    if factor == float("inf"):
        refuse_ignored(context, ("profile_changes",), "for --speed 1; a backlog has none")
        runs.backlog(traffic, servers, limits, delay_ms, postgres_dsn)
    elif factor == 1:
        runs.live(traffic, servers, limits, delay_ms, postgres_dsn, profile_changes)
    else:
        raise FraudError("simulated traffic runs at --speed 1 or max; change --rate instead")


def _servers(bootstrap_servers: str | None) -> str:
    if bootstrap_servers is None:
        raise FraudError(
            "no destination; give --bootstrap-servers (see `fraud stack status`) or, without --replay, "
            "--output FILE.parquet"
        )
    return bootstrap_servers
