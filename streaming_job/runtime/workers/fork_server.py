"""The fork server: forks each Python process of Spark on the driver's machine from a preloaded process.

Spark's Python executable is set to a shell script that runs `launcher` in a bare interpreter. The server ends
with the process that started it; only the job's user can reach its socket.
"""

import json
import logging
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from setproctitle import setproctitle

from streaming_job.runtime.workers import endings, launcher, warm_up

log = logging.getLogger(__name__)

SOCKET, PYTHON = "fork-server", "python"
BACKLOG = 64


@contextmanager
def running(directory: Path) -> Iterator[Path]:
    """Run a server in a separate process.

    Args:
        directory: private directory for the server's socket and the executable.

    Yields:
        Path of the executable to use as Python. It is usable at once; early requests wait for the server.
        Where no server is possible, it is `sys.executable`.
    """
    path = directory / SOCKET
    script = directory / PYTHON
    try:
        listener = _listener(path)
    except OSError as fault:
        log.info("no fork server, so a start takes longer: %s: %s", path, fault)
        yield Path(sys.executable)
        return
    command = [sys.executable, "-I", "-S", launcher.__file__, str(path)]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o700)
    with listener:
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=2,
            pass_fds=[listener.fileno()],
            # as Spark does for its Python processes
            env={"PYTHONHASHSEED": "0", **os.environ, "PYTHONUNBUFFERED": "YES"},
        )
    # the server ends when its stdin closes: on leaving this context, or when this process is killed
    with server:
        try:
            yield script
        finally:
            server.terminate()  # ends the server even while it is still loading


def wait(python: Path) -> None:
    """Wait until the server is ready to fork.

    Args:
        python: the executable that `running` yields.
    """
    # request any process: it runs only once the server is ready; the module `warm_up` does nothing when run
    subprocess.run([python, "-m", warm_up.__name__], stdin=subprocess.DEVNULL, check=False)


def _listener(path: Path) -> socket.socket:
    if sys.platform != "linux":
        raise OSError("only Linux can end a process when its launcher ends")
    listener = socket.socket(socket.AF_UNIX)
    with chdir(path.parent):  # a socket's path has to be short
        listener.bind(path.name)
    listener.listen(BACKLOG)
    return listener


def serve(listener: socket.socket) -> None:
    """Fork a process for each connection, until stdin is closed."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        try:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _become(connection)
        except OSError as fault:  # such as too many processes: the launcher starts Python itself
            print(f"no process was forked: {fault}", file=sys.stderr)


def _become(connection: socket.socket) -> NoReturn:
    """Run the module that a launcher requests, in a newly forked process."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, (*streams, life), _, _ = socket.recv_fds(connection, 1, 4)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        request = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
        connection.send(launcher.STARTED)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in paths if path and path not in sys.path]
        endings.end_with(life)
        # children of this process must not keep the connections to the launcher open
        os.register_at_fork(after_in_child=connection.close)
        os.register_at_fork(after_in_child=lambda: os.close(life))
        _name("-m", *request["arguments"])
        module, *arguments = request["arguments"]
        sys.argv = [module, *arguments]
        sys.modules.pop(module, None)  # so that it runs again, as `__main__`
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for output in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                output.flush()
        with suppress(OSError):
            connection.send(str(code % 256).encode())
        os._exit(code % 256)


def _name(*arguments: str) -> None:
    """Show this process in `ps` as an interpreter with these arguments."""
    setproctitle(shlex.join([sys.executable, *arguments]))


def main() -> None:
    """Run the server; argument: file descriptor of the listening socket."""
    # Ctrl-C is ignored: Spark ends its Python processes itself
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _name("-m", __spec__.name, *sys.argv[1:])  # setproctitle has to run before the environment changes
    from streaming_job.runtime.workers.preload import preload

    preload()
    # children are reaped by the kernel, not by this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
