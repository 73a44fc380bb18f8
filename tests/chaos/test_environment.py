"""A job whose surroundings fail it: it ends with an error that says what to do, and has lost nothing."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from loadtests.faults.errors import FaultError
from loadtests.faults.installation import Installation
from loadtests.faults.relay import Relay
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FULL = "error: a disk is full: make room "
CRASH = "error: Python workers crash: there is no memory left, or no room under FRAUD_WORK_DIR"
"""Of a worker that dies of a page that cannot be had."""
SMALL = 48 << 20
"""Bytes of a disk that is soon full."""
MOVED = "error: the checkpoint was deleted or moved under a running job; "
EMPTY = "error: the topics were last written by query "
MANY = 20
"""Bursts, more than a full disk takes."""


@only_thorough
def test_checkpoint_moved_under_the_job_is_noticed_and_goes_on_once_it_is_back(
    installed: Installation,
) -> None:
    checkpoint, away = Path(installed.settings.checkpoint), installed.directory / "away"
    relay = Relay(installed)
    with ExitStack() as cleanup:
        cleanup.callback(lambda: relay.job.kill())
        relay.burst()
        relay.audit()
        checkpoint.rename(away)
        relay.burst()
        assert relay.job.exit_code() == 1, relay.job.log
        assert relay.job.error.startswith(MOVED)
        shutil.rmtree(checkpoint, ignore_errors=True)
        assert relay.restart().exit_code() == 1
        assert relay.job.error.startswith(EMPTY)
        shutil.rmtree(checkpoint)
        away.rename(checkpoint)
        relay.restart()
        relay.audit()


def fill(file: Path) -> None:
    """Write until nothing more goes onto the disk."""
    with suppress(OSError), file.open("wb", buffering=0) as output:
        while output.write(bytes(4096)):
            pass


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of a few megabytes; skips where nobody may mount one."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@only_thorough
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("checkpoint", (FULL,)),
        # Spark's files are there, too: who needs room first differs
        ("work_dir", (FULL, CRASH)),
    ],
)
def test_full_disk_ends_the_job_and_room_lets_it_go_on(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path, what: str, words: tuple[str, ...]
) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk), ExitStack() as cleanup:
        installed = Installation(stack, topic_names(), tmp_path / "job", **{what: str(disk / what)})
        installed.roll_out()
        relay = Relay(installed)
        cleanup.callback(lambda: relay.job.kill())
        relay.burst()
        relay.audit()
        filler = disk / "filler"
        fill(filler)
        for _ in range(MANY):
            if relay.job.runs:
                relay.burst()
        with suppress(FaultError):
            installed.caught_up(relay.job)
        # a worker that died may leave the next one room for the working copy: then the job goes on
        if what == "checkpoint" or not relay.job.runs:
            assert relay.job.exit_code() == 1, relay.job.log
            assert relay.job.error.startswith(words), relay.job.log
        filler.unlink()
        relay.restart()
        relay.audit()
