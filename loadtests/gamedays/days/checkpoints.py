"""Game days: the checkpoint is deleted while the job runs, or its disk is full.

An older copy is restored; without a copy, a job with an empty checkpoint takes the output over.
"""

import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from loadtests.faults.errors import FaultError
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign


def _paths(scene: Scene) -> tuple[Path, Path]:
    """Return the paths of the checkpoint and its copy."""
    checkpoint = Path(scene.installed.settings.checkpoint)
    return checkpoint, checkpoint.with_name("checkpoint-copy")


def _delete_after_a_copy(scene: Scene) -> None:
    checkpoint, copy = _paths(scene)
    scene.job.terminate()
    shutil.copytree(checkpoint, copy)
    scene.start_job()
    scene.caught_up()
    shutil.rmtree(checkpoint, ignore_errors=True)  # the job creates and removes files meanwhile
    scene.note(f"a copy was made, and the job continued; now {checkpoint.name} is deleted")
    scene.note_end()
    shutil.rmtree(checkpoint, ignore_errors=True)
    scene.start_job()
    if scene.note_end("started on an empty checkpoint, the job ends") == 0:
        raise FaultError("the job has not refused to start on an empty checkpoint")


def _restore_the_copy(scene: Scene) -> None:
    checkpoint, copy = _paths(scene)
    shutil.rmtree(checkpoint, ignore_errors=True)
    copy.rename(checkpoint)
    scene.start_job()


NO_COMMITS = Expected(
    codes=("no_commits", "group_silent"),
    checks=("group_progress",),
    signs=(Sign("fraud_lag_seconds", 10),),
    firing=("FraudPartitionStopped",),
)
"""What a job that cannot run is seen by."""

CHECKPOINT_DELETED = Gameday(
    name="checkpoint_deleted",
    entries=("no_commits", "state_rebuilt"),
    symptom="The checkpoint is lost, and the job ends",
    provoked_by=(
        "the job is stopped, its checkpoint is copied, and the job is started again; then the checkpoint is "
        "deleted"
    ),
    mended_by="the copy, which is older than the output, is restored, and the job is started",
    expected=NO_COMMITS,
    provoke=_delete_after_a_copy,
    mend=_restore_the_copy,
)


def _delete(scene: Scene) -> None:
    checkpoint = Path(scene.installed.settings.checkpoint)
    shutil.rmtree(checkpoint, ignore_errors=True)  # the job creates and removes files meanwhile
    scene.note(f"{checkpoint.name} is deleted")
    scene.note_end()


def _take_over(scene: Scene) -> None:
    query_id = json.loads(scene.fraud("job", "status", "--json"))["query_id"]
    scene.note(f"`fraud job status` names the query that has written last: {query_id}")
    shutil.rmtree(scene.installed.settings.checkpoint, ignore_errors=True)
    scene.start_job(predecessor=query_id)


CHECKPOINT_LOST = Gameday(
    name="checkpoint_lost",
    entries=("no_commits", "state_rebuilt"),
    symptom="The checkpoint is lost, without a copy",
    provoked_by="the checkpoint is deleted while the job runs",
    mended_by=(
        "a job with an empty checkpoint takes the output over (`FRAUD_PREDECESSOR`); it reads the log from "
        "its beginning"
    ),
    expected=NO_COMMITS,
    provoke=_delete,
    mend=_take_over,
)


BYTES = 64 << 20
"""Size of the small disk."""


def _disk(scene: Scene) -> Path:
    return scene.installed.directory / "small-disk"


def _fill_the_disk(scene: Scene) -> None:
    disk = _disk(scene)
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        raise FaultError("a small disk cannot be mounted: run this game day as root, or skip it")
    scene.cleanup.callback(subprocess.run, ["umount", "-l", str(disk)], check=False)
    scene.job.terminate()
    shutil.copytree(scene.installed.settings.checkpoint, disk / "checkpoint")
    scene.start_job(checkpoint=disk / "checkpoint")
    scene.caught_up()
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as output:
        while output.write(bytes(4096)):
            pass
    scene.note("the checkpoint's disk is full")
    scene.note_end()


def _free_the_disk(scene: Scene) -> None:
    disk = _disk(scene)
    (disk / "filler").unlink()
    scene.start_job(checkpoint=disk / "checkpoint")
    scene.caught_up()
    scene.job.terminate()
    home = Path(scene.installed.settings.checkpoint)
    shutil.rmtree(home)
    shutil.copytree(disk / "checkpoint", home)
    scene.note("the job has caught up; the checkpoint is moved back to its old disk")
    scene.start_job()


DISK_FULL = Gameday(
    name="disk_full",
    entries=("no_commits", "checkpoint_old"),
    symptom="The disk of the checkpoint is full",
    provoked_by=f"the checkpoint is moved to a disk of {BYTES >> 20} MiB, which is then filled",
    mended_by="space is freed, and the job is started again",
    expected=Expected(
        codes=("no_commits", "group_silent"),
        signs=(Sign("fraud_lag_seconds", 10),),
        firing=("FraudPartitionStopped",),
    ),
    provoke=_fill_the_disk,
    mend=_free_the_disk,
)
