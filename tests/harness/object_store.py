"""An S3 server whose network fails: requests are late, refused, cut off, or carried out but not answered."""

import http.client
import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deploy.local.ports import HOST, free_port
from deploy.local.waiting import Patience
from harness.tools import find

LATENCY_S = (0.03, 0.1)
EVERY = 5
"""Each so manieth request fails, in turn by one of the faults."""
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Fault(StrEnum):
    """What becomes of a request."""

    REFUSED = auto()
    """503, not carried out."""
    RESET = auto()
    """The connection is cut before it is carried out."""
    UNANSWERED = auto()
    """It is carried out, then the connection is cut."""


class ObjectStore:
    """A bucket, reached through the failing network."""

    def __init__(self, port: int) -> None:
        self._server_port, self._chance, self._lock = port, random.Random(0), threading.Lock()
        self._requests = 0
        self.faults: dict[Fault, int] = dict.fromkeys(Fault, 0)
        """Number of requests that failed."""
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                """Carry out, or fail, whatever method it is."""
                self.raw_requestline = self.rfile.readline(65_537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                store.pass_on(self)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._proxy = ThreadingHTTPServer((HOST, 0), Handler)
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    def place(self, path: str) -> str:
        """URI of a path in the bucket."""
        return f"s3://bucket/{path}?endpoint_override={HOST}:{self._proxy.server_port}&scheme=http"

    def pass_on(self, request: BaseHTTPRequestHandler) -> None:
        """Carry a request out, or let it fail."""
        body = _body(request)
        with self._lock:
            self._requests += 1
            latency_s = self._chance.uniform(*LATENCY_S)
            fault = None if self._requests % EVERY else list(Fault)[self._requests // EVERY % len(Fault)]
            if fault is not None:
                self.faults[fault] += 1
        time.sleep(latency_s)
        if fault is Fault.RESET:
            request.close_connection = True
            return
        if fault is Fault.REFUSED:
            request.send_response(503)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        server = http.client.HTTPConnection(HOST, self._server_port)
        headers = {
            name: value for name, value in request.headers.items() if name.lower() != "transfer-encoding"
        }
        server.request(request.command, request.path, body, {**headers, "Content-Length": str(len(body))})
        answer = server.getresponse()
        content = answer.read()
        server.close()
        if fault is Fault.UNANSWERED:
            request.close_connection = True
            return
        request.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if not re.fullmatch(r"(?i)transfer-encoding|connection|content-length", name):
                request.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if request.command == "HEAD" else str(len(content))
        request.send_header("Content-Length", length)
        request.end_headers()
        request.wfile.write(content)

    def close(self) -> None:
        """Stop the network."""
        self._proxy.shutdown()
        self._proxy.server_close()


def _body(request: BaseHTTPRequestHandler) -> bytes:
    """The content of a request, also if it comes in chunks."""
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    parts = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    while request.rfile.readline().strip():  # trailers
        pass
    return b"".join(parts)


def _has_bucket(port: int) -> bool:
    """Whether the server has answered, and has a bucket now."""
    try:
        server = http.client.HTTPConnection(HOST, port)
        server.request("PUT", "/bucket")
        return server.getresponse().status == 200
    except ConnectionRefusedError:
        return False


@contextmanager
def running() -> Iterator[ObjectStore]:
    """Run a server with an empty bucket; the environment then has its credentials."""
    port = free_port()
    command = [str(find("moto_server")), "-H", HOST, "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        patience = Patience(60.0, 0.1)
        while not _has_bucket(port):
            assert process.poll() is None, "the server ended"
            patience.wait(lambda: AssertionError("the server does not answer"))
        os.environ.update(CREDENTIALS)
        store = ObjectStore(port)
        try:
            yield store
        finally:
            store.close()
    finally:
        process.kill()
        process.wait()
