"""Game day: lag grows, because the job's processes get no CPU time."""

import psutil

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign


def _provoke(scene: Scene) -> None:
    scene.pause(psutil.Process(scene.job.pid), *scene.job.descendants())


DAY = Gameday(
    name="lag_growing",
    entries=("no_commits", "group_silent", "group_stalled"),
    symptom="Lag grows in all partitions",
    provoked_by="SIGSTOP to driver, JVM and workers of the job; transactions keep coming",
    mended_by="SIGCONT to all of them",
    expected=Expected(
        codes=("no_commits", "group_silent"),
        checks=("group_progress",),
        signs=(Sign("fraud_lag_seconds", 10), Sign("fraud_lag_records", 500)),
        rules=("FraudGroupSilent",),
        firing=("FraudPartitionStopped",),
    ),
    provoke=_provoke,
    mend=Scene.resume,
)
