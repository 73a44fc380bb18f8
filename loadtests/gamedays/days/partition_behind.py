"""Game day: one partition falls behind, because the worker of its key group hangs within a long epoch."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign
from streaming_job.runtime.failpoints import Step

LONG_S = 300.0


def _provoke(scene: Scene) -> None:
    # long epochs only: at the end of a short one the other group would wait for the hanging one, and soon the
    # whole job would stop, as in the game day `stuck`
    scene.restart_job(epoch_s=LONG_S)
    scene.caught_up()
    scene.hang(Step.TAKEN)


def _mend(scene: Scene) -> None:
    scene.hanging.kill()
    scene.caught_up()
    scene.note("the partition has caught up; the job is started again with its usual epochs")
    scene.restart_job()


DAY = Gameday(
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
    provoke=_provoke,
    mend=_mend,
)
