"""The shim that Spark starts as `python` on the driver's machine; it asks the fork server for a process.

Spark starts several interpreters, each for a module whose imports take a second or two. A forked process has
these imports already. The shim passes arguments, environment, working directory and standard streams to the
forked process, and exits when that process exits; killing the shim ends the process. The shim imports little,
to start quickly. Without `-m`, or if the server is gone or cannot fork, it becomes the interpreter itself.
"""

import json
import os
import socket
import sys
from contextlib import chdir

STARTED = b"+"
"""Sent when the process has started; its exit code follows when it ends."""


def main() -> None:
    """Run the shim; arguments: path of the server's socket, then those of the interpreter."""
    server, *arguments = sys.argv[1:]
    connection = _connect(server) if arguments[:1] == ["-m"] else None
    if connection is None or not _ask(connection, arguments[1:]):
        os.execv(sys.executable, [sys.executable, *arguments])
    sys.exit(int(connection.recv(4) or b"1"))  # the exit code arrives when the process ends


def _ask(connection: socket.socket, arguments: list[str]) -> bool:
    """Request a process; return False if the server is gone or cannot fork."""
    # the server gets the read end; the write end stays open until the shim ends, in whatever way: then the
    # kernel closes it, which ends the forked process
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
