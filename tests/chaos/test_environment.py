"""A job whose disk or checkpoint fails: it ends with an error that says what to do, and loses nothing."""

import shutil
import signal
import subprocess
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from thoroughness import only_thorough

from deploy.local import stack as stack_of
from deploy.local.stack import Endpoints
from feature_store.errors import ExitCode
from loadtests.faults.errors import FaultError
from loadtests.faults.installation import Installation
from loadtests.faults.relay import Relay
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FULL = "error: a disk is full: make room "
CRASH = "error: Python workers crash: there is no memory left, or no room under FRAUD_WORK_DIR"
"""Error after a worker has crashed on a mapped page for which the disk has no room."""
SILENT = "error: Spark's state store has not answered for 60 s; see the log above, a disk may be full"
"""Error after the JVM thread that writes the state has died."""
SMALL = 48 << 20
"""Size of a disk that soon is full, bytes."""
MOVED = "error: the checkpoint was deleted or moved under a running job; "
EMPTY = "error: the topics were last written by query "
MANY = 20
"""Largest number of bursts sent while the disk is full."""

GONE = "error: Spark's JVM is gone. If the log above has an OutOfMemoryError, raise FRAUD_DRIVER_MEMORY; "
GLUTTON = """
import java.nio.file.*;
import java.util.*;

/** An agent that fills the heap once a file exists. */
public class Glutton {
    private static final List<byte[]> EATEN = new ArrayList<>();

    public static void premain(String file) {
        Thread eater = new Thread(() -> {
            try {
                while (!Files.exists(Path.of(file))) Thread.sleep(50);
                while (true) EATEN.add(new byte[1 << 20]);
            } catch (InterruptedException stopped) {
            }
        }, "glutton");
        eater.setDaemon(true);
        eater.start();
    }
}
"""


@only_thorough
def test_a_moved_checkpoint_ends_the_job_which_continues_once_it_is_back(
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
    """Write until the disk is full."""
    with suppress(OSError), file.open("wb", buffering=0) as output:
        while output.write(bytes(4096)):
            pass


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of SMALL bytes; skips the test where mounting is not permitted."""
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
        ("checkpoint", (FULL, SILENT)),
        # Spark's files are there, too: which process first needs room differs from run to run
        ("work_dir", (FULL, CRASH, SILENT)),
    ],
)
def test_a_full_disk_ends_the_job_and_free_space_lets_it_continue(
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
        # a dead worker may leave the next one enough room for the working copy: then the job continues
        if what == "checkpoint" or not relay.job.runs:
            assert relay.job.exit_code() == 1, relay.job.log
            assert relay.job.error.startswith(words), relay.job.log
        filler.unlink()
        relay.restart()
        relay.audit()


def glutton(directory: Path) -> Path:
    """The jar of the agent; skips the test where there is no Java compiler."""
    if (compiler := shutil.which("javac")) is None:
        pytest.skip("needs javac (Debian: default-jdk-headless)")
    directory.mkdir()
    source, jar = directory / "Glutton.java", directory / "glutton.jar"
    source.write_text(GLUTTON)
    subprocess.run([compiler, "--release", "17", str(source)], check=True)
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nPremain-Class: Glutton\n\n")
        for compiled in directory.glob("*.class"):
            archive.write(compiled, compiled.name)
    return jar


def join(group: Path, pids: Iterable[int | str]) -> None:
    """Move processes to a control group."""
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended since it was listed
            (group / "cgroup.procs").write_text(str(pid))


@contextmanager
def memory_limit(pid: int) -> Iterator[Path]:
    """A control group of a process and its descendants; yields the file of its limit in bytes."""
    group = Path("/sys/fs/cgroup/memory") / f"fraud-test-{pid}"
    try:
        group.mkdir()
    except OSError as fault:
        pytest.skip(f"needs the right to limit memory (cgroup v1): {fault}")
    try:
        join(group, (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))))
        yield group / "memory.limit_in_bytes"
    finally:
        join(group.parent, (group / "cgroup.procs").read_text().split())
        group.rmdir()


@only_thorough
def test_a_machine_without_memory_ends_the_job_which_continues_once_there_is_some(
    installed: Installation,
) -> None:
    relay = Relay(installed)
    with ExitStack() as cleanup:
        cleanup.callback(lambda: relay.job.kill())
        relay.burst()
        relay.audit()
        with memory_limit(relay.job.pid) as limit:
            used = int(limit.with_name("memory.usage_in_bytes").read_text())
            # the kernel first takes back what it can, then kills
            for share in (0.8, 0.6, 0.4, 0.2, 0.1):
                with suppress(OSError):
                    limit.write_text(str(int(share * used)))
                if relay.job.runs:
                    relay.burst()
            code = relay.job.exit_code()
            assert code in (ExitCode.FAILED, -signal.SIGKILL), relay.job.log
            assert code == -signal.SIGKILL or relay.job.error.startswith((CRASH, GONE)), relay.job.log
            limit.write_text("-1")
        relay.restart()
        relay.audit()


@only_thorough
def test_brokers_away_until_spark_gives_up_and_a_supervisor_that_starts_the_job_until_they_are_back(
    tmp_path: Path,
) -> None:
    """The units' pause between two starts is left out; the outage lasts for five starts in vain."""
    servers = tmp_path / "stack"
    with ExitStack() as cleanup:
        cleanup.callback(stack_of.down, servers)
        endpoints = stack_of.up(servers, services=["kafka"])
        # the least timeout of a Kafka transaction, so that Spark's four attempts take a minute
        installed = Installation(endpoints, Topics(), tmp_path / "job", transaction_timeout_ms=10_000)
        installed.roll_out()
        relay = Relay(installed)
        cleanup.callback(lambda: relay.job.kill())
        relay.burst()
        relay.audit()
        installed.send(200)
        stack_of.kill(servers, "kafka")
        codes = [relay.job.exit_code(600.0)]
        for _ in range(5):
            relay.restart()
            codes.append(relay.job.exit_code())
        assert set(codes) == {ExitCode.FAILED}, relay.job.log
        assert relay.job.error.startswith("error: no answer from Kafka at ")
        stack_of.up(servers, services=["kafka"])
        relay.restart()
        relay.burst()
        relay.audit()


@only_thorough
def test_a_full_heap_ends_the_job_which_continues_with_more(installed: Installation) -> None:
    jar, now = glutton(installed.directory / "glutton"), installed.directory / "eat"
    relay = Relay(installed, driver_java_options=f'"-javaagent:{jar}={now}"')
    with ExitStack() as cleanup:
        cleanup.callback(lambda: relay.job.kill())
        relay.burst()
        relay.audit()
        now.touch()
        relay.burst()
        assert relay.job.exit_code() == 1, relay.job.log
        assert relay.job.error.startswith(GONE), relay.job.log
        assert "java.lang.OutOfMemoryError: Java heap space" in relay.job.log
        now.unlink()
        relay.restart()
        relay.audit()
