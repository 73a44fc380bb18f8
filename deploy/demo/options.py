"""Options of a demo."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from feature_store.errors import FraudError
from loadtests.durations import seconds


class DemoError(FraudError):
    """The demo cannot continue.

    `--fresh` starts from the beginning.
    """


@dataclass(frozen=True)
class Options:
    """Options of one `fraud demo`; all paths are absolute."""

    data_dir: Path = Path()
    """Directory of all files of this demo."""
    for_s: Annotated[
        float | None,
        Option(
            "--for",
            parser=seconds,
            metavar="TIME",
            help="How long to feed: 60s, 5m. Default: until Ctrl-C, or until --replay, --rollouts or "
            "--replay-model end.",
        ),
    ] = None
    """A tour (`rollouts`, `replay_model`) is completed even if it takes longer."""
    rate: Annotated[float, Option(min=0.001, max=10_000_000, help="Transactions per second.")] = 500.0
    seed: Annotated[int, Option(min=0, help="Seed of the simulated world.")] = 0
    cards: int = 50_000
    """Number of cards in the simulated world."""
    replay: Path | None = None
    """File to replay instead of simulated traffic."""
    speed: float = float("inf")
    """Speed of the replay: seconds of the file per second."""
    rollouts: Annotated[
        bool, Option("--rollouts", help="While streaming, try a better and a trigger-happy model.")
    ] = False
    replay_model: Annotated[
        bool,
        Option(
            "--replay-model",
            help="While streaming, replay the log with a better model, compare, switch to it, and go back.",
        ),
    ] = False
    merchant_labels: Annotated[
        bool,
        Option(
            "--merchant-labels",
            help="Replay a month in two minutes: merchants are compromised, and labels reveal them.",
        ),
    ] = False
    fresh: Annotated[bool, Option("--fresh", help="Start from the beginning even if a run was killed.")] = (
        False
    )
    keep: Annotated[bool, Option("--keep", help="Leave the servers running at the end.")] = False
    with_prometheus: Annotated[
        bool,
        Option(
            "--with-prometheus",
            help="Also start Prometheus (must be installed) and, except with --merchant-labels, a continuous "
            "audit of some of the cards.",
        ),
    ] = False
    with_mlflow_ui: Annotated[
        bool, Option("--with-mlflow-ui", help="Also start MLflow's web page: curves and model cards.")
    ] = False
    report: Annotated[
        Path | None, Option(resolve_path=True, help="Write the summary to this file, as JSON.")
    ] = None
    picture: Annotated[
        Path | None, Option(resolve_path=True, help="Save the last screen to this file, as SVG.")
    ] = None

    def story(self) -> dict[str, str | int | bool | None]:
        """Return the options that must stay the same when a killed demo is continued."""
        return {
            "seed": self.seed,
            "cards": self.cards,
            "replay": None if self.replay is None else str(self.replay),
            "rollouts": self.rollouts,
            "replay_model": self.replay_model,
            "merchant_labels": self.merchant_labels,
        }
