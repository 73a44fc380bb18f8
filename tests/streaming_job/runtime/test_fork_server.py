"""A process of the fork server behaves like the interpreter in whose place it is started."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streaming_job.runtime.workers import fork_server, launcher

pytestmark = pytest.mark.unit

WaitFor = Callable[..., object]

PROGRAM = """
import os, sys
print(os.getcwd(), os.environ["COLOUR"], __name__, *sys.argv[1:], sys.stdin.read())
print("numba" in sys.modules, file=sys.stderr)
sys.exit(7)
"""
FOREVER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))
print("up", flush=True)
while True:
    time.sleep(60)
"""
PATIENCE_S = 60.0
START = """
import sys
from pathlib import Path
from streaming_job.runtime.workers import fork_server
with fork_server.running(Path(sys.argv[1])) as python:
    print(python, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The executable, in a directory whose path is longer than a socket's may be."""
    directory = tmp_path_factory.mktemp("a" * 120)
    with fork_server.running(directory) as executable:
        fork_server.wait(executable)  # compiling all kernels, if their cache is empty, takes minutes
        yield executable


@pytest.fixture
def modules(tmp_path: Path) -> dict[str, str]:
    """Environment in which `program` and `forever` are modules."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "forever.py").write_text(FOREVER)
    return {**os.environ, "COLOUR": "blue", "PYTHONPATH": str(tmp_path)}


def run(executable: Path | str, directory: Path, environment: dict[str, str]) -> tuple[int, str, bool]:
    ended = subprocess.run(
        [executable, "-m", "program", "one", "two words"],
        input="from stdin", cwd=directory, env=environment,
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr.strip() == "True"


@pytest.fixture
def forever(python: Path, modules: dict[str, str]) -> Iterator[tuple[psutil.Popen, psutil.Process]]:
    """A launcher, and its process, which does not end by itself."""
    started = psutil.Popen([python, "-m", "forever"], env=modules, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout.readline() == "up\n"
        (forked,) = [each for each in psutil.Process().children(recursive=True) if runs_forever(each)]
        yield started, forked
    finally:
        with suppress(psutil.NoSuchProcess):
            started.kill()
        started.wait(PATIENCE_S)


def runs_forever(process: psutil.Process) -> bool:
    """Whether a process runs the program `forever`, and is no launcher."""
    try:
        words = process.cmdline()
    except psutil.NoSuchProcess:  # a zombie, which other tests may leave, has no command line
        return False
    return "-m forever" in " ".join(words) and launcher.__file__ not in words


def test_arguments_environment_streams_and_exit_code_are_the_interpreters(
    python: Path, tmp_path: Path, modules: dict[str, str]
) -> None:
    code, out, everything_loaded = run(python, tmp_path, modules)
    assert (code, out) == run(sys.executable, tmp_path, modules)[:2]
    assert (code, out) == (7, f"{tmp_path} blue __main__ one two words from stdin\n")
    assert everything_loaded


def test_killing_the_launcher_kills_its_process(
    forever: tuple[psutil.Popen, psutil.Process], wait_for: WaitFor
) -> None:
    started, forked = forever
    started.kill()
    # the kernel sends the forked process SIGTERM, not SIGKILL: one such process is Spark's daemon, which
    # on SIGTERM signals its workers before it ends
    assert started.stdout.read() == "asked to end\n"
    wait_for(lambda: not forked.is_running(), deadline_s=PATIENCE_S)


def test_launcher_ends_with_its_process(forever: tuple[psutil.Popen, psutil.Process]) -> None:
    started, forked = forever
    forked.kill()
    assert started.wait(PATIENCE_S) == 1


def test_without_a_server_it_is_an_interpreter(tmp_path: Path, modules: dict[str, str]) -> None:
    with fork_server.running(tmp_path) as python:
        pass
    code, _, everything_loaded = run(python, tmp_path, modules)
    assert code == 7
    assert not everything_loaded


def test_server_that_dies_before_it_forks_leaves_an_interpreter(
    tmp_path: Path, modules: dict[str, str], wait_for: WaitFor
) -> None:
    others = set(psutil.Process().children())
    with fork_server.running(tmp_path) as python:
        (server,) = set(psutil.Process().children()) - others
        # the server is still importing
        waits = psutil.Popen([python, "-m", "program"], env=modules, cwd=tmp_path, stdin=subprocess.DEVNULL)
        wait_for(lambda: launcher.__file__ in waits.cmdline(), deadline_s=PATIENCE_S)
        server.kill()
        assert waits.wait(PATIENCE_S) == 7


def test_without_room_for_a_socket_it_is_an_interpreter() -> None:
    with fork_server.running(Path("/proc")) as python:
        assert python == Path(sys.executable)


def test_server_ends_with_the_process_that_started_it(tmp_path: Path, wait_for: WaitFor) -> None:
    starter = psutil.Popen(
        [sys.executable, "-c", START, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    starter.stdout.readline()
    wait_for(lambda: bool(starter.children()), deadline_s=PATIENCE_S)
    (server,) = starter.children()
    starter.send_signal(signal.SIGKILL)
    starter.wait(PATIENCE_S)
    wait_for(lambda: not server.is_running(), deadline_s=PATIENCE_S)
