"""Game day: one worker hangs, so the epoch does not end, and all key groups wait for the next."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign
from streaming_job.runtime.failpoints import Step


def _provoke(scene: Scene) -> None:
    scene.hang(Step.TAKEN)


DAY = Gameday(
    name="stuck",
    entries=("stuck", "no_commits", "group_silent"),
    symptom="One worker hangs, and the whole job stops",
    provoked_by="the worker of one key group stops for ever between taking records and deciding them",
    mended_by="the job is killed and started again",
    expected=Expected(
        codes=("no_commits", "group_silent"),
        checks=("group_progress", "transactions"),
        signs=(Sign("fraud_lag_seconds", 60), Sign("fraud_group_progress_age_seconds", 60)),
        rules=("FraudStuck",),
        firing=("FraudPartitionStopped", "FraudGroupSilent"),
    ),
    provoke=_provoke,
    mend=Scene.start_job,
    patience_s=300,
)
