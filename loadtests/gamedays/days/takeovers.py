"""Game days: a takeover is interrupted, and an upgraded job loses its checkpoint.

At the end the job takes its output back on its first checkpoint: the days that follow know no other.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from loadtests.faults.errors import FaultError
from loadtests.faults.installation import query_of
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.days.checkpoints import NO_COMMITS
from loadtests.gamedays.scene import Scene
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.takeover.handover import TOOK_OVER


def _checkpoint(scene: Scene) -> Path:
    """Return the path of the successor's checkpoint."""
    return Path(scene.installed.settings.checkpoint).with_name("checkpoint-successor")


def _successor(scene: Scene, **changes: Any) -> dict[str, Any]:
    """Return the changed settings of a job that takes over from the first one, with its state."""
    first = scene.installed.settings.checkpoint
    given = {"predecessor": query_of(first), "predecessor_checkpoint": first}
    return {"checkpoint": str(_checkpoint(scene)), **given, **changes}


def _take_over(scene: Scene, **settings: Any) -> None:
    """Start a job that takes over, and make it the scene's."""
    before, scene.job = scene.job, scene.installed.start(**settings)
    scene.others.append(before)
    scene.until(lambda: TOOK_OVER in scene.job.log, "the takeover")


def _take_back(scene: Scene) -> None:
    _take_over(scene, predecessor=json.loads(scene.fraud("job", "status", "--json"))["query_id"])
    scene.note("the first job has taken the output back")
    scene.caught_up()
    shutil.rmtree(_checkpoint(scene), ignore_errors=True)


def _kill_before_the_seam(scene: Scene) -> None:
    successor = scene.installed.start(**_successor(scene, key_groups=1))
    scene.others.append(successor)
    successor.arm(Failpoint.CLAIMED)
    scene.until(lambda: successor.reached(Failpoint.CLAIMED), "the claims")
    scene.note_end("the predecessor ends")
    successor.kill()
    scene.start_job()
    if scene.note_end("started again, the predecessor ends") == 0:
        raise FaultError("the predecessor has not refused to start while it is being taken over")


def _go_on(scene: Scene) -> None:
    _take_over(scene, **_successor(scene, key_groups=1))
    scene.caught_up()
    _take_back(scene)


RESIZE_INTERRUPTED = Gameday(
    name="resize_interrupted",
    entries=("no_commits",),
    symptom="A job that was taking over with another number of key groups is dead",
    provoked_by=(
        "a successor with one key group instead of two is killed when it has fenced the running job, and has "
        "not written the seam"
    ),
    mended_by=(
        "the same successor is started again, and takes over; at last the first job takes its output back"
    ),
    expected=NO_COMMITS,
    provoke=_kill_before_the_seam,
    mend=_go_on,
)


def _upgrade_then_lose(scene: Scene) -> None:
    _take_over(scene, **_successor(scene))
    scene.caught_up()
    shutil.rmtree(_checkpoint(scene), ignore_errors=True)  # the job creates and removes files meanwhile
    scene.note("the upgraded job has taken over; now its checkpoint is deleted")
    scene.note_end()


UPGRADE_TAKEN_BACK = Gameday(
    name="upgrade_taken_back",
    entries=("no_commits",),
    symptom="A job that has taken over in an upgrade has lost its checkpoint",
    provoked_by="a successor takes over on a checkpoint of its own, which is then deleted",
    mended_by=(
        "the former job is started with its checkpoint, which is older than the output, and takes the output "
        "back (`FRAUD_PREDECESSOR`)"
    ),
    expected=NO_COMMITS,
    provoke=_upgrade_then_lose,
    mend=_take_back,
)
