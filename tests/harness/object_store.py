"""An S3 server whose network fails: requests are late, refused, cut off, or carried out but not answered."""

import http.client
import os
import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deploy.local.ports import HOST, free_port
from deploy.local.waiting import Patience
from harness.tools import find

LATENCY_S = (0.03, 0.1)
SLOW_S, EVERY = 5.0, 5
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
    SLOW = auto()
    """It is carried out, and answered after SLOW_S."""
    DENIED = auto()
    """403, not carried out."""


FAILURES = (Fault.REFUSED, Fault.RESET, Fault.UNANSWERED)


class ObjectStore:
    """A bucket, reached through the failing network."""

    def __init__(self, port: int) -> None:
        self._server_port, self._chance, self._lock = port, random.Random(0), threading.Lock()
        self._requests = 0
        self.latency_s, self.every, self.kinds = LATENCY_S, EVERY, FAILURES
        """How late requests are; each so manieth fails (0: none does), in turn by one of these faults."""
        self.denies_reading = False
        """Whether objects may be listed, but not read, as without the right to use their key."""
        self.faults = Counter(dict.fromkeys(FAILURES, 0))
        """Number of requests that failed."""
        self.methods: Counter[str] = Counter()
        """Number of requests by method; a GET of a listing is LIST, a PUT of a copy is COPY."""
        self.sent = self.received = 0
        """Bytes of the contents that clients have sent, and received."""
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                """Carry out, or fail, whatever method it is."""
                try:
                    self.raw_requestline = self.rfile.readline(65_537)
                    if self.raw_requestline and self.parse_request():
                        store.pass_on(self)
                    else:
                        self.close_connection = True
                except ConnectionError:  # the client was killed
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._proxy = ThreadingHTTPServer((HOST, 0), Handler)
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    def place(self, path: str) -> str:
        """URI of a path in the bucket."""
        return f"s3://bucket/{path}?endpoint_override={HOST}:{self._proxy.server_port}&scheme=http"

    def calm(self) -> None:
        """From now on, requests are neither late nor fail."""
        self.latency_s, self.every, self.denies_reading = (0.0, 0.0), 0, False

    def fail(self, kinds: tuple[Fault, ...], every: int = EVERY) -> None:
        """From now on, requests are late, and each so manieth fails, in turn by one of these faults."""
        self.latency_s, self.every, self.kinds = LATENCY_S, every, kinds

    @property
    def endpoint(self) -> str:
        """URL of the network's entrance."""
        return f"http://{HOST}:{self._proxy.server_port}"

    def objects(self, prefix: str) -> list[str]:
        """Keys of the objects below a prefix, at most a thousand."""
        server = http.client.HTTPConnection(HOST, self._server_port)
        server.request("GET", f"/bucket?list-type=2&prefix={prefix}")
        return re.findall("<Key>(.*?)</Key>", server.getresponse().read().decode())

    def spark(self) -> dict[str, str]:
        """The properties with which Spark reaches the bucket as s3a://bucket."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": CREDENTIALS["AWS_REGION"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    def _disturbance(self, request: BaseHTTPRequestHandler) -> tuple[float, Fault | None]:
        """Count a request; return how late it is, and what becomes of it."""
        with self._lock:
            self._requests += 1
            copies, lists = "x-amz-copy-source" in request.headers, "list-type=" in request.path
            self.methods["COPY" if copies else "LIST" if lists else request.command] += 1
            fails = self.every and self._requests % self.every == 0
            fault = self.kinds[self._requests // self.every % len(self.kinds)] if fails else None
            if self.denies_reading and request.command == "GET" and not lists:
                return 0.0, Fault.DENIED
            if fault is not None:
                self.faults[fault] += 1
            return self._chance.uniform(*self.latency_s), fault

    def pass_on(self, request: BaseHTTPRequestHandler) -> None:
        """Carry a request out, or let it fail."""
        body = _body(request)
        latency_s, fault = self._disturbance(request)
        time.sleep(latency_s)
        if fault is Fault.RESET:
            request.close_connection = True
            return
        if fault in (Fault.REFUSED, Fault.DENIED):
            request.send_response(503 if fault is Fault.REFUSED else 403)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        server = http.client.HTTPConnection(HOST, self._server_port)
        headers = {
            name: value for name, value in request.headers.items() if name.lower() != "transfer-encoding"
        }
        server.request(request.command, request.path, body, {**headers, "Content-Length": str(len(body))})
        answer = server.getresponse()
        # S3 calls this element Result, and clients check it; moto 5.2.1 does not
        content = answer.read().replace(b"CompleteMultipartUploadResponse", b"CompleteMultipartUploadResult")
        server.close()
        with self._lock:
            self.sent, self.received = self.sent + len(body), self.received + len(content)
        if fault is Fault.UNANSWERED:
            request.close_connection = True
            return
        if fault is Fault.SLOW:
            time.sleep(SLOW_S)
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
    """Run a server with an empty bucket; the environment then has its credentials, and its address."""
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
        os.environ["MLFLOW_S3_ENDPOINT_URL"] = store.endpoint
        try:
            yield store
        finally:
            store.close()
    finally:
        process.kill()
        process.wait()
