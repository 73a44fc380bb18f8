"""Game day: epochs do not end, because the driver hangs; the workers continue."""

import psutil

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign


def _provoke(scene: Scene) -> None:
    scene.pause(psutil.Process(scene.job.pid))


DAY = Gameday(
    name="long_epochs",
    entries=("checkpoint_old",),
    symptom="Epochs do not end, the state is not saved",
    provoked_by="SIGSTOP pauses the driver's Python process, so no epoch ends; the JVM and workers run on",
    mended_by="the job is killed and started again; alerts that it had already written are not written again",
    expected=Expected(
        codes=("checkpoint_old",),
        signs=(Sign("fraud_group_epoch_age_seconds", 20),),
        rules=("FraudCheckpointOld",),
    ),
    provoke=_provoke,
    mend=Scene.start_job,
)
