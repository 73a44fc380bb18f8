"""The oracle: a naive implementation that computes the right outcome of every record from the logs alone."""

from loadtests.oracle.framed import SchemaLog
from loadtests.oracle.judge import Oracle
from loadtests.oracle.merchants import MerchantLog
from loadtests.oracle.records import (
    AcceptanceRules,
    ExpectedOutcome,
    Kind,
    Record,
    SizedHash,
    digest,
    sized_hash,
)
from loadtests.oracle.rollout_log import RolloutLog
from loadtests.oracle.rollouts import Scorer
from loadtests.oracle.scoring import Model
from loadtests.oracle.tables import CARD_TABLES, CardTable, ProfileLog
from loadtests.oracle.trials import Pair

__all__ = [
    "CARD_TABLES",
    "AcceptanceRules",
    "CardTable",
    "ExpectedOutcome",
    "Kind",
    "MerchantLog",
    "Model",
    "Oracle",
    "Pair",
    "ProfileLog",
    "Record",
    "RolloutLog",
    "SchemaLog",
    "Scorer",
    "SizedHash",
    "digest",
    "sized_hash",
]
