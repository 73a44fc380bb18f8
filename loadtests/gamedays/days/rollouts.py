"""Game days: a model that was rolled out is of no use.

A challenger raises errors and so breaches a guard; the sidecar rolls the rollout back. A champion raises
errors; the rules other than `score` decide where it fails. A model is promoted with a threshold that every
score reaches.
"""

import uuid
from functools import cache

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from feature_store.catalogue import COLUMN, IDENTITIES
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import VELOCITY, Scene
from loadtests.gamedays.sight import Expected, Sign
from models import registry
from models.registry import ModelRef

USED = ("amount", "risk_tier")
"""Features of the failing model; the second is unknown for a card without a profile."""
ROWS = 400
EACH = 3
"""Transactions of cards without a profile for every 20 of other cards."""
RAISES = "raises"
FAILING = "failing-champion"
STORM = "storm"


@cache
def _failing_model(tracking_uri: str) -> ModelRef:
    """Register, once per process, a model that raises on unknown values, so for cards without a profile.

    It is trained to alert on amounts above 30.
    """
    rows = np.random.default_rng(0).exponential(10.0, (ROWS, len(USED)))
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, rows[:, 0] > 30)
    features = tuple(IDENTITIES[COLUMN[name]] for name in USED)
    return registry.register(fitted, features, rows[:50], np.median(rows, axis=0), tracking_uri)


def _send_strangers(scene: Scene) -> None:
    """Start to send transactions of cards without a profile, too."""
    scene.traffic.add(EACH, lambda record: record | {"card_id": f"card-{uuid.uuid4().hex}"})


def _propose(
    scene: Scene, model: ModelRef, threshold: str, rollout_id: str, reason: str, *options: str
) -> None:
    """Propose a model, with the traffic's limit of velocity."""
    scene.fraud(
        "rollouts", "propose", str(model), *options, "--threshold", threshold,
        "--max-count-5m", str(VELOCITY), "--rollout-id", rollout_id, "--reason", reason,
    )  # fmt: skip


def _propose_a_failing_model(scene: Scene) -> None:
    _send_strangers(scene)
    model = _failing_model(scene.stack.mlflow_tracking_uri)
    _propose(scene, model, "0.9", RAISES, "a model not tested on cards without a profile")
    scene.fraud("rollouts", "step", RAISES, "shadow")


def _await_the_rollback(scene: Scene) -> None:
    scene.traffic.end_added()
    rollout = scene.until(
        lambda: scene.rollout(RAISES)["phase"] == "rolled_back" and scene.rollout(RAISES), "the rollback"
    )
    for event in rollout["events"][-2:]:
        scene.note(f"{event['type']} by {event['actor']}: {event['reason']}")


CHALLENGER_FAILS = Gameday(
    name="challenger_fails",
    entries=("guard_breach",),
    symptom="A challenger raises exceptions",
    provoked_by="a model that raises for cards without a profile is proposed and put into shadow",
    mended_by="no action: the sidecar rolls the challenger back by itself",
    expected=Expected(
        signs=(
            Sign("fraud_trial_failures_total", 1, {"rollout_id": RAISES}),
            Sign("fraud_rollout_phase", 0, {"rollout_id": RAISES, "fraud_rollout_phase": "rolled_back"}),
        ),
        firing=("FraudGuardBreach",),
    ),
    provoke=_propose_a_failing_model,
    mend=_await_the_rollback,
)


def _promote_a_failing_model(scene: Scene) -> None:
    _send_strangers(scene)
    model = _failing_model(scene.stack.mlflow_tracking_uri)
    _propose(scene, model, "0.9", FAILING, "promoted without a trial", "--promote")


def _withdraw_the_failing_model(scene: Scene) -> None:
    scene.traffic.end_added()
    scene.fraud("rollouts", "step", FAILING, "withdraw", "--reason", "it raises")


CHAMPION_FAILS = Gameday(
    name="champion_fails",
    entries=("model_fails",),
    symptom="The champion raises exceptions",
    provoked_by="a model that raises for cards without a profile is promoted without a trial",
    mended_by="`fraud rollouts step ROLLOUT withdraw`: the previous champion decides again",
    expected=Expected(
        signs=(Sign("fraud_scoring_failures_total", 100, grows=True),),
        rules=("FraudScoringFails",),
    ),
    provoke=_promote_a_failing_model,
    mend=_withdraw_the_failing_model,
)


ALERT_STORM = Gameday(
    name="alert_storm",
    entries=("alert_storm",),
    symptom="Every transaction alerts",
    provoked_by="`fraud rollouts propose MODEL --promote --threshold 0`",
    mended_by="`fraud rollouts step ROLLOUT withdraw`: the previous champion decides again",
    expected=Expected(
        signs=(
            Sign("fraud_alerts_total", 2_000, grows=True),
            Sign("fraud_alert_rules_total", 2_000, {"rule": "score"}, grows=True),
        ),
    ),
    provoke=lambda scene: _propose(scene, scene.model.model, "0", STORM, "of another scale", "--promote"),
    mend=lambda scene: scene.fraud("rollouts", "step", STORM, "withdraw", "--reason", "everything alerts"),
    note="`FraudAlertStorm` is not expected: it compares with the previous day, when the job did not run.",
)
