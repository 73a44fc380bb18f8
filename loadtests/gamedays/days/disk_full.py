"""Game day: the checkpoint's disk is full."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from loadtests.faults.errors import FaultError
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

BYTES = 64 << 20
"""Size of the small disk."""


def _disk(scene: Scene) -> Path:
    return scene.installed.directory / "small-disk"


def _provoke(scene: Scene) -> None:
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
    scene.note(f"the job ends with status {scene.job.exit_code()}: {scene.job.error}")


def _mend(scene: Scene) -> None:
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


DAY = Gameday(
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
    provoke=_provoke,
    mend=_mend,
)
