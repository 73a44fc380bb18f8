"""The `python` that Spark starts on the driver's machine: has the fork server fork one, and stands for it.

Spark starts one interpreter after the other, each for a module that imports for a second or two. A process
that the fork server forks has all that imported. This one gives it its arguments, environment and standard
streams, lives as long as it does, and takes it along when it is killed. It imports little, to be quick.
Without a server it becomes the interpreter that Spark wanted.
"""

import json
import os
import socket
import sys
from contextlib import chdir

STARTED = b"+"
"""Comes when there is a process; what it ends with comes later."""


def main() -> None:
    """Arguments: path of the server's socket, then those of the interpreter."""
    server, *arguments = sys.argv[1:]
    connection = _connect(server) if arguments[:1] == ["-m"] else None
    if connection is None or not _ask(connection, arguments[1:]):
        os.execv(sys.executable, [sys.executable, *arguments])
    sys.exit(int(connection.recv(4) or b"1"))  # it comes when the process ends


def _ask(connection: socket.socket, arguments: list[str]) -> bool:
    """Ask for a process; no if the server is gone before there is one."""
    # closed by the kernel when this process ends, however it does: the other one is told
    life, _ = os.pipe()
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    try:
        socket.send_fds(connection, [b"\0"], [0, 1, 2, life])
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1) == STARTED
    except OSError:
        return False
    finally:
        os.close(life)


def _connect(server: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        with chdir(os.path.dirname(server)):  # a socket's path has to be short
            connection.connect(os.path.basename(server))
    except OSError:
        return None
    return connection


if __name__ == "__main__":
    main()
