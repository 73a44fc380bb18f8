"""The command line of `fraud demo`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from deploy.demo.options import DemoError, Options

app = typer.Typer(add_completion=False)
DIRECTORY = Path(".fraud")
CARDS = 50_000


@app.command()
def demo(
    length: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="How long to feed: 60s, 5m. Default: until Ctrl-C, or until --replay, --rollouts or "
            "--replay-model end.",
        ),
    ] = None,
    rate: Annotated[float, typer.Option(help="Transactions per second.")] = 500.0,
    seed: Annotated[int, typer.Option(help="Seed of the simulated world.")] = 0,
    cards: Annotated[
        int | None,
        typer.Option(help="Number of simulated cards. Default: 50,000, with --merchant-labels 2,000."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the summary to this file, as JSON.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Save the last screen to this file, as SVG.")] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            help="Feed this parquet file, not simulated traffic; it has the columns of the transaction "
            "contract or those of the fraud detection handbook (docs/models.md)."
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
    rollouts: Annotated[
        bool,
        typer.Option("--rollouts", help="While streaming, try a better and a trigger-happy model."),
    ] = False,
    replay_model: Annotated[
        bool,
        typer.Option(
            "--replay-model",
            help="While streaming, replay the log with a better model, compare, switch to it, and go back.",
        ),
    ] = False,
    merchant_labels: Annotated[
        bool,
        typer.Option(
            "--merchant-labels",
            help="Replay a month in two minutes: merchants are compromised, and labels reveal them.",
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start from the beginning even if a run was killed.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the servers running at the end.")] = False,
    with_prometheus: Annotated[
        bool,
        typer.Option(
            "--with-prometheus",
            help="Also start Prometheus (must be installed) and, except with --merchant-labels, a continuous "
            "audit of some of the cards.",
        ),
    ] = False,
    with_mlflow_ui: Annotated[
        bool, typer.Option("--with-mlflow-ui", help="Also start MLflow's web page: curves and model cards.")
    ] = False,
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
    from loadtests import durations

    if with_prometheus:
        server.binary()
    if replay is not None and not replay.is_file():
        raise DemoError(f"no file {replay}; give a parquet file of transactions")
    tours = [name for name, is_on in (("--rollouts", rollouts), ("--replay-model", replay_model)) if is_on]
    if replay is not None and tours:
        raise DemoError(f"{tours[0]} needs live traffic; leave --replay out")
    if len(tours) > 1:
        raise DemoError(f"{' and '.join(tours)} are two tours; leave one out")
    if merchant_labels and (replay is not None or tours or speed != "max"):
        raise DemoError(
            "--merchant-labels brings its own traffic; leave --replay, --speed, --rollouts and "
            "--replay-model out"
        )
    kind = "demo-merchants" if merchant_labels else "demo-replay" if replay else "demo"
    directory = (data_dir or DIRECTORY / kind).resolve()
    if merchant_labels:
        replay = directory / compromise.FILE
    options = Options(
        data_dir=directory,
        for_s=None if length is None else durations.seconds(length),
        rate=rate,
        seed=seed,
        cards=cards or (compromise.CARDS if merchant_labels else CARDS),
        replay=None if replay is None else replay.resolve(),
        speed=compromise.SPEED if merchant_labels else durations.speed(speed),
        rollouts=rollouts,
        replay_model=replay_model,
        merchant_labels=merchant_labels,
        fresh=fresh,
        keep=keep,
        with_prometheus=with_prometheus,
        with_mlflow_ui=with_mlflow_ui,
        report=None if report is None else report.resolve(),
        picture=None if picture is None else picture.resolve(),
    )
    if not Demo(options).run():
        sys.exit(1)
