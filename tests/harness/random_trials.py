"""Random rollouts: canaries, pauses, breaches, rollbacks."""

import random
from dataclasses import replace

import numpy as np

from harness.job_world import World, load, model_ref, scorer, subset_ref
from harness.rollout_records import challenger, event, proposed
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts import machine
from models.rollouts.events import Demands, Event, Type
from models.scoring import Scorer

RAISES, NO_NUMBER = model_ref("6"), model_ref("7")
"""A model that fails on some transactions, and one that fails on all."""


class _Failing:
    """A model that raises an error for large amounts, or never returns a number."""

    def __init__(self, ref: ModelRef) -> None:
        self._raises = ref == RAISES

    def score(self, x: np.ndarray) -> np.ndarray:
        if not self._raises:
            return np.full(len(x), np.nan)
        if (x[:, 0] > 300).any():
            raise ValueError("such amounts were not in the training set")
        return scorer("2").score(x)

    def explain(self, x: np.ndarray) -> np.ndarray:
        return scorer("2").explain(x)


def load_any(ref: ModelRef) -> Scorer:
    """Load a model as `load` does; for RAISES and NO_NUMBER, return a model that fails."""
    if ref in (RAISES, NO_NUMBER):
        return replace(scorer("2"), version=ref.version, digest=ref.digest, classifier=_Failing(ref))
    return load(ref)


def random_policy(rng: random.Random) -> Policy:
    """A policy with random rules."""
    return Policy(
        rng.choice([0.0, 0.3, 0.5, rng.random()]), rng.choice([2, 4, 50]), rng.choice(["score", "review"]),
        rng.choice([None, 2]), rng.choice([None, 4]), rng.choice(["decline", "review", "ignore"]),
        rng.choice(["decline", "review", "ignore"]), rng.choice([None, 1, 2, 4]), rng.choice([0, 60, 3_600]),
    )  # fmt: skip


GUARDS = [
    None, {}, {"alpha": 1e-6}, {"deadline_h": 8_760}, {"min_card_hours": 9}, {"alpha": "?"},
    {"rules": [{"name": "scoring_time", "max_ratio": 1_000}]},
    {"rules": [{"name": "alert_rate", "max_ratio": 2}]},
    {"rules": [{"name": "alert_rate", "max_ratio": 2, "min_ratio": 0.1}]},
    {"rules": [{"name": "score_drift", "max_psi": 1, "min_scores": 100_000}]},
]  # fmt: skip
"""Guards of a proposal: the defaults, some below the floor, one that cannot be read, one at the floor."""
DEMANDS = [Demands(), Demands(), Demands(four_eyes=True), Demands(four_eyes=False), Demands(True, 5_000)]


def random_event(rng: random.Random, world: World) -> Event:
    """An event that may follow the log so far; sometimes one that may not. Three people write events."""
    drawn, actor = _random_event(rng, world), rng.choice(["ada", "bob", "eve"])
    drawn = replace(drawn, actor=actor, approved_by=rng.choice([actor, actor, None, "eve"]))
    if drawn.type is Type.PROPOSED:
        drawn = replace(drawn, guards=rng.choice(GUARDS), demands=rng.choice(DEMANDS))
    return drawn


def _random_event(rng: random.Random, world: World) -> Event:
    line = world.line()
    name = line.open or next(reversed(line.trials), "none")
    kinds = machine.allowed(line, name)
    if line.open is None and (not kinds or rng.random() < 0.8):
        models = [model_ref("1"), model_ref("2"), subset_ref(), RAISES, NO_NUMBER]
        names = rng.sample("bcd", rng.randrange(1, 4))
        return proposed(
            f"r-{len(world.rollouts)}",
            *(
                challenger(rng.choice(models), key, "canary" if key == names[0] else "shadow",
                           random_policy(rng))
                for key in names
            ),
        )  # fmt: skip
    kind = rng.choice(kinds or tuple(Type)[1:])
    if kind in (Type.ROLLED_BACK, Type.BREACHED, Type.PROMOTED) and rng.random() < 0.6:
        kind = rng.choice(kinds)  # drawn again, so that most trials last longer
    known = line.trials.get(name)
    seq = (known.seq if known else 0) + rng.choice([1] * 9 + [2])
    if known is None or kind not in (Type.CANARY_SET, Type.BREACHED, Type.PROMOTED):
        return event(kind, name, seq)
    own = {"challenger": rng.choice(known.challengers).name}
    if kind is Type.CANARY_SET:
        return event(kind, name, seq, **own, share_bp=rng.choice([1_000, 5_000, 10_000]))
    return event(kind, name, seq, **own)
