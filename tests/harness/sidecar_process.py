"""`fraud serve` in its own process, as an operator runs it."""

import os
import signal
import subprocess
import urllib.error
import urllib.request

import httpx
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.launch import FRAUD

STOP_S = 30.0
REQUEST_S = 30.0


class SidecarProcess:
    """The sidecar on a free port; a context manager that kills it."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        """Start it and wait until it listens.

        Args:
            arguments: of `fraud serve`, beside the port.
            environment: variables beside those of this process.
        """
        self.process = subprocess.Popen(
            [*FRAUD, "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("sidecar: http"), line or self.process.communicate()
        self.url = line.split()[1]
        """Base URL, ending with a slash."""

    def __enter__(self) -> "SidecarProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the process and wait for its end."""
        self.process.kill()
        self.process.communicate(timeout=STOP_S)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal and wait for the end; returns exit code, standard output and standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=STOP_S)
        return self.process.returncode, out, err

    def get(self, path: str) -> tuple[int, str]:
        """Send a GET request; return status and body."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=REQUEST_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        """Send a POST request with a JSON body."""
        return httpx.post(f"{self.url}{path}", json=body, headers=headers, timeout=REQUEST_S)

    def samples(self) -> dict[str, float]:
        """Samples of `/metrics`; see `samples_of`."""
        return samples_of(self.get("metrics")[1])


def samples_of(text: str) -> dict[str, float]:
    """Samples of an exposition by name; if they have labels, by name{values of the labels}."""
    return {
        sample.name + (f"{{{','.join(sample.labels.values())}}}" if sample.labels else ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
