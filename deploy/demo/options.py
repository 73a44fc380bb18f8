"""What a demo was asked for."""

from dataclasses import dataclass
from pathlib import Path

from feature_store.errors import FraudError


class DemoError(FraudError):
    """The demo cannot go on."""


@dataclass(frozen=True)
class Options:
    """Of the command line."""

    data_dir: Path
    """Absolute; everything of this demo lies there."""
    for_s: float | None = None
    """How long to feed, seconds; None: until Ctrl-C, or to the end of the file."""
    rate: float = 500.0
    """Simulated transactions per second."""
    seed: int = 0
    """Of the simulated world."""
    cards: int = 50_000
    """Of the simulated world."""
    replay: Path | None = None
    """Absolute path of a file to replay instead."""
    speed: float = float("inf")
    """Of the replay: file seconds per second."""
    rollouts: bool = False
    """Have the sidecar try two challengers while it streams: a better model, and a trigger-happy one."""
    fresh: bool = False
    """Start with an empty data directory whatever was left there."""
    keep: bool = False
    """Leave the embedded stack running at the end."""
    with_prometheus: bool = False
    """Start a Prometheus with our rules beside the sidecar."""
    report: Path | None = None
    """Where the summary goes as JSON."""
    picture: Path | None = None
    """Where the last screen goes as SVG."""

    def story(self) -> dict[str, str | int | bool | None]:
        """What must stay the same when a demo that was killed is continued."""
        return {
            "seed": self.seed,
            "cards": self.cards,
            "replay": None if self.replay is None else str(self.replay),
            "rollouts": self.rollouts,
        }
