"""The command line of `fraud demo`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from deploy.demo.options import DemoError, Options
from feature_store.option_groups import takes
from loadtests import durations

app = typer.Typer()
DIRECTORY = Path(".fraud")


@app.command()
@takes("given", Options, but=("data_dir", "cards", "replay", "speed"))
def demo(
    given: Options,
    cards: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000_000,
            help="Number of simulated cards. Default: 50,000, with --merchant-labels 2,000.",
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            resolve_path=True,
            help="Feed this parquet file, not simulated traffic; it has the columns of the transaction "
            "contract or those of the fraud detection handbook (docs/models.md).",
        ),
    ] = None,
    speed: Annotated[
        str, typer.Option(help="Speed of a replay: max, or seconds of the file per second.")
    ] = "max",
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Directory of all files. Default: .fraud/demo, with --replay .fraud/demo-replay, with "
            "--merchant-labels .fraud/demo-merchants."
        ),
    ] = None,
) -> None:
    """Bring everything up, stream card transactions, watch the alerts, then verify every one of them.

    A killed demo is continued by the next call, which recovers Kafka's logs and the job's state and verifies
    everything since the beginning. After a finished demo the next call starts from the beginning. The exit
    status is 0 only if the audit finds no output missing, duplicated or unexpected, and no disagreement with
    job-progress.

    Example: fraud demo --for 60s
    """
    from deploy.demo import compromise
    from deploy.demo.run import Demo
    from deploy.prometheus import server

    if given.with_prometheus:
        server.binary()
    if replay is not None and not replay.is_file():
        raise DemoError(f"no file {replay}; give a parquet file of transactions")
    switches = {"--rollouts": given.rollouts, "--replay-model": given.replay_model}
    tours = [name for name, is_on in switches.items() if is_on]
    if replay is not None and tours:
        raise DemoError(f"{tours[0]} needs live traffic; leave --replay out")
    if len(tours) > 1:
        raise DemoError(f"{' and '.join(tours)} are two tours; leave one out")
    if given.merchant_labels and (replay is not None or tours or speed != "max"):
        raise DemoError(
            "--merchant-labels brings its own traffic; leave --replay, --speed, --rollouts and "
            "--replay-model out"
        )
    kind = "demo-merchants" if given.merchant_labels else "demo-replay" if replay else "demo"
    directory = (data_dir or DIRECTORY / kind).resolve()
    options = replace(
        given, data_dir=directory, cards=cards or given.cards, replay=replay, speed=durations.speed(speed)
    )
    if given.merchant_labels:
        options = replace(
            options,
            cards=cards or compromise.CARDS,
            replay=directory / compromise.FILE,
            speed=compromise.SPEED,
        )
    if not Demo(options).run():
        sys.exit(1)
