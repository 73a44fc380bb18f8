"""Game days: processes of the job hang.

All of them get no CPU time, and the lag grows. One worker hangs: its epoch does not end, and all key groups
wait for the next; within a long epoch only its own partitions fall behind. The driver hangs: no epoch ends.
"""

import psutil

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign
from streaming_job.runtime.failpoints import Failpoint

LONG_S = 300.0


LAG_GROWING = Gameday(
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
    provoke=lambda scene: scene.pause(psutil.Process(scene.job.pid), *scene.job.descendants()),
    mend=Scene.resume,
)


STUCK = Gameday(
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
    provoke=lambda scene: scene.hang(Failpoint.TAKEN),
    mend=Scene.start_job,
    patience_s=300,
)


def _hang_in_a_long_epoch(scene: Scene) -> None:
    # long epochs only: at the end of a short one the other group would wait for the hanging one, and soon the
    # whole job would stop, as in the game day `stuck`
    scene.restart_job(epoch_s=LONG_S)
    scene.caught_up()
    scene.hang(Failpoint.TAKEN)


def _kill_the_hanging_worker(scene: Scene) -> None:
    scene.hanging.kill()
    scene.caught_up()
    scene.note("the partition has caught up; the job is started again with its usual epochs")
    scene.restart_job()


PARTITION_BEHIND = Gameday(
    name="partition_behind",
    entries=("partition_behind", "no_commits"),
    symptom="One partition is behind, the others are not",
    provoked_by=(
        f"the job is started with epochs of {LONG_S:.0f} s, within which key groups do not wait for one "
        "another; then the worker of one key group hangs"
    ),
    mended_by="SIGKILL to the worker that hangs: Spark runs its task again in another worker",
    expected=Expected(
        codes=("no_commits",),
        signs=(Sign("fraud_partition_lag_seconds", 30),),
        rules=("FraudPartitionBehindOthers",),
        firing=("FraudPartitionStopped",),
    ),
    provoke=_hang_in_a_long_epoch,
    mend=_kill_the_hanging_worker,
)


LONG_EPOCHS = Gameday(
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
    provoke=lambda scene: scene.pause(psutil.Process(scene.job.pid)),
    mend=Scene.start_job,
)
