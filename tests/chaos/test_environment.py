"""A job whose surroundings fail it: it ends with an error that says what to do, and has lost nothing."""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.faults.relay import Relay
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FULL = "error: a disk is full: make room "
CRASH = "error: Python workers crash: there is no memory left, or no room under FRAUD_WORK_DIR"
"""Of a worker that dies of a page that cannot be had."""
SMALL = 48 << 20
"""Bytes of a disk that is soon full."""
DELETED = "error: the checkpoint was deleted or moved under a running job; "
MANY = 20
"""Bursts, more than a full disk takes."""


def stopped(relay: Relay) -> None:
    relay.job.process.send_signal(signal.SIGTERM)
    assert relay.job.ended() == 0, relay.job.log


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def newest(directory: Path, pattern: str) -> Path:
    numbered = [path for path in directory.glob(pattern) if path.name[0].isdigit()]
    return max(numbered, key=lambda path: int(path.name.split(".")[0]))


def damaged_offsets(checkpoint: Path) -> None:
    cut_short(newest(checkpoint, "offsets/*"))


def lost_offsets(checkpoint: Path) -> None:
    newest(checkpoint, "offsets/*").unlink()


def damaged_state(checkpoint: Path) -> None:
    for partition in (checkpoint / "state" / "0").iterdir():
        if partition.name.isdigit():
            cut_short(newest(partition, "**/*.changelog"))


def lost_state(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state")


DAMAGES = {
    damaged_offsets: "error: the checkpoint's file offsets/",
    lost_offsets: "error: the topics are at batch ",
    damaged_state: "error: the checkpoint is damaged",
    lost_state: "error: the checkpoint is damaged",
}


@only_thorough
def test_damaged_checkpoint_is_refused_and_the_whole_one_goes_on(installed: Installation) -> None:
    relay = Relay(installed)
    with ExitStack() as cleanup:
        cleanup.callback(lambda: relay.job.kill())
        relay.burst()
        relay.audit()
        stopped(relay)
        jobs = {}
        for damage in DAMAGES:
            copy = installed.directory / damage.__name__
            shutil.copytree(installed.settings.checkpoint, copy)
            damage(copy)
            work = installed.directory / f"work-{damage.__name__}"
            jobs[damage] = cleanup.enter_context(installed.start(checkpoint=str(copy), work_dir=work))
        installed.send(10)
        for damage, words in DAMAGES.items():
            assert jobs[damage].ended() == 1, jobs[damage].log
            assert jobs[damage].error.startswith(words), jobs[damage].log
        relay.restart()
        relay.audit()


@only_thorough
def test_checkpoint_deleted_under_the_job_is_noticed(installed: Installation) -> None:
    relay = Relay(installed)
    with ExitStack() as cleanup:
        cleanup.callback(lambda: relay.job.kill())
        relay.burst()
        relay.audit()
        shutil.rmtree(installed.settings.checkpoint)
        written = len(installed.read(installed.topics.job_progress))
        relay.burst()
        assert relay.job.ended() == 1, relay.job.log
        assert relay.job.error.startswith(DELETED)
        assert relay.restart().ended() == 1
        assert relay.job.error.startswith(DELETED)
        assert len(installed.read(installed.topics.job_progress)) == written


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
        assert relay.job.ended() == 1, relay.job.log
        assert relay.job.error.startswith(words), relay.job.log
        filler.unlink()
        relay.restart()
        relay.audit()
