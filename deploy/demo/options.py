"""Options of a demo."""

from dataclasses import dataclass
from pathlib import Path

from feature_store.errors import FraudError


class DemoError(FraudError):
    """The demo cannot continue.

    `--fresh` starts from the beginning.
    """


@dataclass(frozen=True)
class Options:
    """Options of one `fraud demo`, from the command line."""

    data_dir: Path
    """Absolute path of the directory of all files of this demo."""
    for_s: float | None = None
    """How long to feed, seconds; None: until Ctrl-C, or the end of the replayed file or of a tour
    (`rollouts`, `replay_model`). A tour is completed even if it takes longer than `for_s`."""
    rate: float = 500.0
    """Simulated transactions per second."""
    seed: int = 0
    """Seed of the simulated world."""
    cards: int = 50_000
    """Number of cards in the simulated world."""
    replay: Path | None = None
    """Absolute path of a file to replay instead of simulated traffic."""
    speed: float = float("inf")
    """Speed of the replay: seconds of the file per second."""
    rollouts: bool = False
    """Have the sidecar try two challengers during the stream: a better model, and a trigger-happy one."""
    replay_model: bool = False
    """Have a better model decide the log again during the stream, switch to it, and go back."""
    merchant_labels: bool = False
    """Replay weeks in which merchants are compromised, with labels; the model has merchant label features."""
    fresh: bool = False
    """Start with an empty data directory, even after an unfinished run."""
    keep: bool = False
    """Leave the embedded stack running at the end."""
    with_prometheus: bool = False
    """Start a Prometheus with the project's rules and, without `merchant_labels`, a continuous audit of some
    cards."""
    with_mlflow_ui: bool = False
    """Start MLflow's web page over the registry."""
    report: Path | None = None
    """File for the summary as JSON."""
    picture: Path | None = None
    """File for the last screen as SVG."""

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
