"""Game day: an alert storm. A model is promoted with a threshold that every score reaches."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

ID = "storm"


def _provoke(scene: Scene) -> None:
    model = scene.model.model
    scene.fraud(
        "rollouts", "promote", f"{model.name}/{model.version}", "--threshold", "0", "--max-count-5m", "1000",
        "--rollout-id", ID, "--reason", "a threshold of another scale",
    )  # fmt: skip


def _mend(scene: Scene) -> None:
    scene.fraud("rollouts", "withdraw", ID, "--reason", "everything alerts")


DAY = Gameday(
    name="alert_storm",
    entries=("alert_storm",),
    symptom="Every transaction alerts",
    provoked_by="`fraud rollouts promote ... --threshold 0`",
    mended_by="`fraud rollouts withdraw`: the previous champion decides again",
    expected=Expected(
        signs=(
            Sign("fraud_alerts_total", 2_000, grows=True),
            Sign("fraud_alert_rules_total", 2_000, {"rule": "score"}, grows=True),
        ),
    ),
    provoke=_provoke,
    mend=_mend,
    note="`FraudAlertStorm` is not expected: it compares with the previous day, when the job did not run.",
)
