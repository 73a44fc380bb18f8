"""The rollout of a replay that replaces a model or a policy, and the live rollouts that it stands for."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deploy.replay.record import Replay, ReplayError
from feature_store.merchants.catalogue import computed
from loadtests.simulator.rollouts import publish
from models.policy import Policy
from models.rollouts.events import tightening
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


def carry_demands_over(live: JobSettings, replay: Replay) -> None:
    """Write into the replay's own log of rollouts what the live one demands more; may be repeated.

    Raises:
        ReplayError: a rollout is open in the replay's log, so nothing can be proposed there.
    """
    after = replay.successor(live)
    line = live_line(after)
    demands = line.demands.tightened_by(live_line(live).demands)
    rollout_id = f"replay-{replay.name}-{demands.operator_max_share_bp}"
    if demands == line.demands and line.open != rollout_id:
        return
    topic, champion = after.topics.model_rollouts, line.champions[-1]
    if line.open not in (None, rollout_id):
        raise ReplayError(f"rollout {line.open} is open on {topic}; promote it or roll it back first")
    events = tightening(
        champion.model, champion.policy, demands, rollout_id, "fraud replay", int(time.time() * 1000),
        reason="what the live rollouts demand of operators holds after the switch, too",
    )  # fmt: skip
    publish(events, live.bootstrap_servers, topic, live.kafka)


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
