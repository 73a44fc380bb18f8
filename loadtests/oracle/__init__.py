"""The oracle: a naive implementation that computes the right outcome of every record from the logs alone."""

from loadtests.oracle.judge import Oracle
from loadtests.oracle.merchants import MerchantLog
from loadtests.oracle.records import Kind, Outcome, Part, Record, Rules, digest, part
from loadtests.oracle.rollout_log import RolloutLog
from loadtests.oracle.rollouts import Scorer
from loadtests.oracle.scoring import Model
from loadtests.oracle.tables import ProfileLog
from loadtests.oracle.trials import Pair

__all__ = [
    "Kind",
    "MerchantLog",
    "Model",
    "Oracle",
    "Outcome",
    "Pair",
    "Part",
    "ProfileLog",
    "Record",
    "RolloutLog",
    "Rules",
    "Scorer",
    "digest",
    "part",
]
