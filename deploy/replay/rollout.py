"""The rollout of a replay that replaces a model or a policy, and the live rollouts that it stands for."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deploy.replay.errors import ReplayError
from feature_store.merchants.catalogue import computed
from models.policy import Policy
from models.rollouts.state import Line
from service.rollouts import checks
from service.rollouts.desk import Desk
from service.rollouts.model_registry import ModelRegistry
from service.settings import ServiceSettings
from streaming_job.settings import JobSettings


def live_line(live: JobSettings) -> Line:
    """Return the state of the live job's rollouts."""
    settings = ServiceSettings(
        bootstrap_servers=live.bootstrap_servers, kafka=live.kafka, job_id=live.job_id, topics=live.topics
    )
    return Desk(settings).look()[0].line


def replaced(live: JobSettings, model: str, policy: Policy | None, release: str) -> Mapping[str, Any]:
    """Return the field `rollout` of a replay's record.

    Args:
        model: NAME/VERSION; empty: the live champion.
        policy: None: the champion's.
        release: program of another release, empty for this one. Only its own job can tell whether it computes
            the features of the model.

    Raises:
        ReplayError: no champion decides, whose model or policy could be kept.
    """
    champions = live_line(live).champions
    if not champions and not (model and policy):
        raise ReplayError("no champion decides, whose model or policy could be kept; give both")
    registry = ModelRegistry(live.mlflow_tracking_uri)
    ref = registry.find(model) if model else champions[-1].model
    scorer = registry.verify(ref)
    if not release:
        checks.require_features(ref, list(computed(merchants=live.merchant_facts)), live.job_id)
    checks.require_label_delay(scorer, live.merchant_delay_ms, live.job_id)
    return {
        "model": asdict(ref),
        "policy": asdict(policy or champions[-1].policy),
        "created_at": int(time.time() * 1000),
    }
