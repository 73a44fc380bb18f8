"""The checkpoint is deleted under the job; an older copy is restored."""

import shutil
from pathlib import Path

from loadtests.faults.errors import FaultError
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign


def _places(scene: Scene) -> tuple[Path, Path]:
    """Checkpoint and its copy."""
    checkpoint = Path(scene.installed.settings.checkpoint)
    return checkpoint, checkpoint.with_name("checkpoint-copy")


def _provoke(scene: Scene) -> None:
    checkpoint, copy = _places(scene)
    scene.job.terminate()
    shutil.copytree(checkpoint, copy)
    scene.start_job()
    scene.caught_up()
    shutil.rmtree(checkpoint, ignore_errors=True)  # the job makes files and takes them away meanwhile
    scene.tell(f"a copy was made, the job went on; now {checkpoint.name} is deleted")
    scene.tell(f"the job ends with status {scene.job.ended()}: {scene.job.error}")
    shutil.rmtree(checkpoint, ignore_errors=True)
    scene.start_job()
    if scene.job.ended() == 0:
        raise FaultError("a job on an empty checkpoint has not refused to start")
    scene.tell(f"started on an empty checkpoint it ends with status {scene.job.ended()}: {scene.job.error}")


def _mend(scene: Scene) -> None:
    checkpoint, copy = _places(scene)
    shutil.rmtree(checkpoint, ignore_errors=True)
    copy.rename(checkpoint)
    scene.start_job()


DAY = Gameday(
    name="checkpoint_deleted",
    entries=("no_commits", "state_rebuilt"),
    symptom="The checkpoint is gone, and the job with it",
    provoked_by="the job is stopped for a copy of its checkpoint, goes on; then the checkpoint is deleted",
    mended_by="the copy is restored, which is older than the output, and the job is started",
    expected=Expected(
        codes=("no_commits", "group_silent"),
        checks=("voices",),
        signs=(Sign("fraud_lag_seconds", 10),),
        firing=("FraudPartitionStopped",),
    ),
    provoke=_provoke,
    mend=_mend,
)
