"""The oracle: what had to become of every record, computed naively from the logs alone."""

from loadtests.oracle.judge import Oracle
from loadtests.oracle.records import Kind, Outcome, Part, Record, Rules, digest, part
from loadtests.oracle.scoring import Model
from loadtests.oracle.tables import ProfileLog, Rollout, RolloutLog

__all__ = [
    "Kind",
    "Model",
    "Oracle",
    "Outcome",
    "Part",
    "ProfileLog",
    "Record",
    "Rollout",
    "RolloutLog",
    "Rules",
    "digest",
    "part",
]
