"""Game day: a challenger raises errors and so breaches a guard; the sidecar rolls the rollout back."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.failing import failing_model, send_strangers
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

ID = "raises"


def _provoke(scene: Scene) -> None:
    send_strangers(scene)
    model = failing_model(scene.stack.mlflow_tracking_uri)
    scene.fraud(
        "rollouts", "propose", f"{model.name}/{model.version}", "--threshold", "0.9",
        "--max-count-5m", "1000",
        "--rollout-id", ID, "--reason", "a model not tested on cards without a profile",
    )  # fmt: skip
    scene.fraud("rollouts", "shadow", ID)


def _mend(scene: Scene) -> None:
    scene.traffic.also = None
    rollout = scene.until(
        lambda: scene.rollout(ID)["phase"] == "rolled_back" and scene.rollout(ID), "the rollback"
    )
    for event in rollout["events"][-2:]:
        scene.note(f"{event['type']} by {event['actor']}: {event['reason']}")


DAY = Gameday(
    name="challenger_fails",
    entries=("guard_breach",),
    symptom="A challenger raises exceptions",
    provoked_by="a model that raises for cards without a profile is proposed and put into shadow",
    mended_by="no action: the sidecar rolls the challenger back by itself",
    expected=Expected(
        signs=(
            Sign("fraud_trial_failures_total", 1, {"rollout_id": ID}),
            Sign("fraud_rollout_phase", 0, {"rollout_id": ID, "fraud_rollout_phase": "rolled_back"}),
        ),
        firing=("FraudGuardBreach",),
    ),
    provoke=_provoke,
    mend=_mend,
)
