"""Training of a demo's first champion and challengers, in a child process, while the servers start."""

import json
import math
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from deploy.demo import compromise
from deploy.demo.options import DemoError, Options
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
"""Challengers of `--rollouts`: one with TREES trees, and one with TINY trees and a low threshold. The first
is also that of `--replay-model`."""
SMALL, TINY = 15, 3
"""Numbers of trees of the weak champion that a tour begins with, and of the trigger-happy challenger."""
BUDGET, LARGE_BUDGET = 0.005, 0.1
"""Share of the transactions that may alert by score: usually, and with the trigger-happy challenger."""


TASK = TypeAdapter(tuple[Options, str, int])
"""Options of the demo, address of the model registry, and the time of the training, ms."""


@dataclass(frozen=True)
class Champion:
    """A registered model and the policy to roll it out with."""

    ref: ModelRef
    threshold: float
    max_count_5m: int
    auc_roc: float
    """AUC ROC on the newest quarter of the history, which the model was not fitted on."""
    learnt_from: str


def load(path: Path) -> Champion | None:
    """Load a champion from a file; None if there is no file yet."""
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return Champion(**{**raw, "ref": ModelRef.from_json(raw["ref"])})


def trained(data_dir: Path, name: str) -> Champion:
    """Return a model that the training has written.

    Raises:
        DemoError: it has not.
    """
    model = load(file_of(data_dir, name))
    if model is None:
        raise DemoError(f"there is no trained model {name} in {data_dir}; start with --fresh")
    return model


def file_of(data_dir: Path, name: str) -> Path:
    """Return the path of the file with a model's `Champion`."""
    return data_dir / f"{name}.json"


def arguments(options: Options, tracking_uri: str, now_ms: int) -> list[str]:
    """Build the command line arguments of this module."""
    finite = replace(options, speed=1.0)  # JSON has no infinity
    return [TASK.dump_json((finite, tracking_uri, now_ms)).decode()]


def train(options: Options, tracking_uri: str, now_ms: int) -> dict[str, Champion]:
    """Train and register the models, and choose their policies.

    They are trained on the file to replay, if its beginning has at least FEWEST_FRAUDS labelled frauds; with
    `merchant_labels` on the weeks before `compromise`'s archive; otherwise on a simulated history that ends
    at `now_ms`.

    Returns:
        Models by name: the challengers, if any, and CHAMPION as the last one.
    """
    from models.algorithms import QUICK
    from models.pipeline import fit_and_register
    from models.train import LABEL_DELAY_MS

    history, labels, source = None, None, ""
    seed, cards, rate, merchant_labels = options.seed, options.cards, options.rate, options.merchant_labels
    if merchant_labels:
        history, labels = compromise.history(seed, cards, rate)
        source = f"the {compromise.TRAINING_DAYS} days before the replay, with merchant label features"
    elif options.replay is not None:
        history, source = _beginning(options.replay), f"the beginning of {options.replay.name}"
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

    if not options.rollouts and not options.replay_model:
        return {CHAMPION: fitted(TREES, compromise.ALERT_BUDGET if merchant_labels else BUDGET)}
    champion = fitted(SMALL, BUDGET)
    challengers = {BETTER: fitted(TREES, BUDGET)}
    if options.rollouts:
        challengers[TRIGGER_HAPPY] = fitted(TINY, LARGE_BUDGET)
    return {**challengers, CHAMPION: champion}


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
    options, tracking_uri, now_ms = TASK.validate_json(text)
    for name, model in train(options, tracking_uri, now_ms).items():
        replace_json(file_of(options.data_dir, name), asdict(model))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except FraudError as error:
        sys.exit(f"error: {error}")
