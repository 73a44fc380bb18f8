"""Training of a demo's first champion and challengers, in a child process, while the servers start."""

import json
import math
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from deploy.demo import compromise
from deploy.demo.options import Options
from deploy.local.files import replace_json
from feature_store.errors import FraudError
from models.registry import ModelRef

HISTORY = 200_000
"""Number of simulated transactions, or maximum number of transactions of a file, to train on."""
FILE_SHARE = 0.25
"""Maximum share of a replayed file to train on."""
FEWEST_FRAUDS = 100
"""Least number of labelled frauds in the part of a file to train on; with fewer, the history is simulated."""
RATE = 0.999
"""Share of the genuine transactions that stay within the velocity limit."""
FEWEST_IN_5M = 10
"""Least velocity limit, transactions in 5 minutes."""
CHAMPION = "champion"
TREES = 100
BETTER, TRIGGER_HAPPY = "better", "trigger-happy"
"""Challengers of `--rollouts`: one with TREES trees, one with TINY trees and a low threshold."""
SMALL, TINY = 15, 3
"""Numbers of trees of the weak champion of `--rollouts`, and of the trigger-happy challenger."""
BUDGET, LARGE_BUDGET = 0.005, 0.1
"""Share of the transactions that may alert by score: usually, and with the trigger-happy challenger."""


@dataclass(frozen=True)
class Champion:
    """A registered model and the policy to roll it out with."""

    ref: ModelRef
    threshold: float
    max_count_5m: int
    auc_roc: float
    """AUC ROC on the newest quarter of the history, which the model was not fitted on."""
    learnt_from: str
    """Description of the training data."""


def load(path: Path) -> Champion | None:
    """Load a champion from a file; None if there is no file yet."""
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return Champion(**{**raw, "ref": ModelRef.from_json(raw["ref"])})


def file_of(data_dir: Path, name: str) -> Path:
    """Return the path of the file with a model's `Champion`."""
    return data_dir / f"{name}.json"


def arguments(options: Options, tracking_uri: str, now_ms: int) -> list[str]:
    """Build the command line arguments of this module."""
    job = {
        "replay": None if options.replay is None else str(options.replay),
        "seed": options.seed,
        "cards": options.cards,
        "rate": options.rate,
        "rollouts": options.rollouts,
        "merchant_labels": options.merchant_labels,
        "tracking_uri": tracking_uri,
        "now_ms": now_ms,
        "directory": str(options.data_dir),
    }
    return [json.dumps(job)]


def train(
    replay: Path | None,
    seed: int,
    cards: int,
    rate: float,
    rollouts: bool,
    tracking_uri: str,
    now_ms: int,
    merchant_labels: bool = False,
) -> dict[str, Champion]:
    """Train and register the models, and choose their policies.

    Args:
        replay: file to train on, if its beginning has at least FEWEST_FRAUDS labelled frauds.
        rate: rate of the simulated history, transactions per second.
        rollouts: whether to train a weak champion and two challengers.
        now_ms: end of the simulated history, ms.
        merchant_labels: whether to train instead on the weeks before `compromise`'s archive, with labels.

    Returns:
        Models by name: the challengers, if any, and CHAMPION as the last one.
    """
    from models.algorithms import QUICK
    from models.pipeline import fit_and_register
    from models.train import LABEL_DELAY_MS

    history, labels, source = None, None, ""
    if merchant_labels:
        history, labels = compromise.history(seed, cards, rate)
        source = f"the {compromise.TRAINING_DAYS} days before the replay, with merchant label features"
    elif replay is not None:
        history, source = _beginning(replay), f"the beginning of {replay.name}"
    if history is None:
        history, source = _simulated(seed, cards, rate, now_ms), "simulated history"
    limit = _velocity_limit(history)

    def fitted(iterations: int, budget: float) -> Champion:
        learner = replace(QUICK, seed=seed, iterations=iterations)
        trained = fit_and_register(
            history,
            tracking_uri,
            labels=labels,
            merchant_labels=merchant_labels,
            label_delay_ms=compromise.LABEL_DELAY_MS if merchant_labels else LABEL_DELAY_MS,
            learner=learner,
            alert_budget=budget,
        )
        return Champion(
            trained.ref,
            trained.quality.threshold,
            limit,
            trained.quality.auc_roc,
            f"{trained.rows:,} transactions of {source}, {trained.frauds:,} of them frauds",
        )

    if not rollouts:
        return {CHAMPION: fitted(TREES, compromise.ALERT_BUDGET if merchant_labels else BUDGET)}
    champion = fitted(SMALL, BUDGET)
    return {BETTER: fitted(TREES, BUDGET), TRIGGER_HAPPY: fitted(TINY, LARGE_BUDGET), CHAMPION: champion}


def _simulated(seed: int, cards: int, rate: float, now_ms: int) -> pa.Table:
    """Simulate the world's last HISTORY transactions before `now_ms`, without disturbances."""
    from loadtests.simulator.disturbances import Disturbances
    from loadtests.simulator.transactions import Stream
    from loadtests.simulator.world import World

    start_ms = max(0, now_ms - int(HISTORY / rate * 1_000))
    stream = Stream(World.create(seed, cards), rate, start_ms, disturbances=Disturbances.none())
    return pa.concat_tables([batch.table for batch in stream.blocks(events=HISTORY)])


def _beginning(path: Path) -> pa.Table | None:
    """Read the first rows of a file; None without enough labelled frauds."""
    from loadtests.simulator.replay import Replay

    replay = Replay(path)
    rows = min(HISTORY, math.ceil(replay.rows * FILE_SHARE))
    table = pa.concat_tables([batch.table for batch in replay.batches(rows)])
    if "label" not in table.column_names:
        return None
    frauds = int(np.count_nonzero(table["label"].fill_null(0).to_numpy()))
    return table if frauds >= FEWEST_FRAUDS else None


def _velocity_limit(history: pa.Table) -> int:
    """Compute the count in 5 minutes that a share RATE of the genuine transactions does not exceed.

    It is at least FEWEST_IN_5M.
    """
    from feature_store import catalogue
    from feature_store.training import training_set

    counts = training_set.build(history)[:, catalogue.COLUMN["count_5m"]]
    genuine = history["label"].fill_null(0).to_numpy() == 0
    return max(FEWEST_IN_5M, math.ceil(float(np.nanquantile(counts[genuine], RATE))))


def main(text: str) -> None:
    """Train as the JSON arguments say, and write a file for each model, the champion's last."""
    job = json.loads(text)
    directory = Path(job.pop("directory"))
    job["replay"] = None if job["replay"] is None else Path(job["replay"])
    for name, model in train(**job).items():
        replace_json(file_of(directory, name), asdict(model))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except FraudError as error:
        sys.exit(f"error: {error}")
