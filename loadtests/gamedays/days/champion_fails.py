"""Game day: the champion raises errors; the rules other than `score` decide where it fails."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.failing import failing_model, send_strangers
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

ID = "failing-champion"


def _provoke(scene: Scene) -> None:
    send_strangers(scene)
    model = failing_model(scene.stack.mlflow_tracking_uri)
    scene.fraud(
        "rollouts", "promote", f"{model.name}/{model.version}", "--threshold", "0.9",
        "--max-count-5m", "1000",
        "--rollout-id", ID, "--reason", "promoted without a trial",
    )  # fmt: skip


def _mend(scene: Scene) -> None:
    scene.traffic.also = None
    scene.fraud("rollouts", "withdraw", ID, "--reason", "it raises")


DAY = Gameday(
    name="champion_fails",
    entries=("model_fails",),
    symptom="The champion raises exceptions",
    provoked_by="a model that raises for cards without a profile is promoted without a trial",
    mended_by="`fraud rollouts withdraw`: the previous champion decides again",
    expected=Expected(
        signs=(Sign("fraud_scoring_failures_total", 100, grows=True),),
        rules=("FraudScoringFails",),
    ),
    provoke=_provoke,
    mend=_mend,
)
