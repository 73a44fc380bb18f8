"""HTTP servers as child processes: the sidecar, and any other command that serves."""

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.local.child import Child, stop
from deploy.local.launch import FRAUD
from deploy.local.ports import HOST, free_port

TIMEOUT_S = 10.0
START_S = 180.0
END_S = 20.0


def get(url: str) -> str:
    """Return the body of a GET request, whatever its status.

    Raises:
        OSError: the server does not answer.
    """
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answered:
            return str(answered.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


@contextmanager
def running(command: Sequence[str], log: Path, environment: Mapping[str, str], ready: str) -> Iterator[None]:
    """Run a process that serves HTTP; enter the context once it is ready, stop it at the end.

    Args:
        environment: additional variables.
        ready: URL that answers without an error once the process is ready.
    """
    server = Child(f"the server at {ready}", command, log, environment)
    try:
        server.wait_until(lambda: _is_ready(ready), START_S)
        yield
    finally:
        stop([server], END_S)


@contextmanager
def sidecar(log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run `fraud serve` on a free port; gives its URL, ending in a slash.

    Args:
        environment: additional variables, which must include the FRAUD_... variables of the job.
    """
    port = free_port()
    url = f"http://{HOST}:{port}/"
    with running([*FRAUD, "serve", "--port", str(port)], log, environment, f"{url}livez"):
        yield url


def _is_ready(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=TIMEOUT_S).close()
    except OSError:  # an HTTPError is one, too
        return False
    return True
