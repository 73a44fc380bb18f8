"""A connection to a broker that sends each request once, and waits for its answer.

Nothing here is repeated: what follows from a missing answer is for the caller to decide (decision 12). The
encoding of messages and the mechanisms of SASL are those of kafka-python.
"""

import socket
import ssl
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from feature_store.errors import FraudError
from streaming_job.protocol.fields import NO_TAGS, Request
from streaming_job.protocol.login import Login
from streaming_job.runtime import pauses

T = TypeVar("T")
CONNECT_S = 5.0
"""Limit for making a connection and logging in."""
ASK_S = 10.0
"""Limit for a request outside a transaction."""
SESSION = 0.8
"""Share of a SASL session's time after which a connection is replaced."""
OLDEST = 4
"""Version of FindCoordinator that came with Kafka 3.0, the oldest release with all requests of this job."""
HEADER = struct.Struct(">hhih")
"""API, version and number of a request, length of the client's id."""
NUMBER, FRAME = struct.Struct(">i"), struct.Struct(">ii")
"""Length of a message; length and number of an answer."""
SOFTWARE = "card-fraud"
SLICE_S = 0.5
"""Longest wait for bytes without a look at the stop request."""
KEEP_ALIVE = {
    "SO_KEEPALIVE": 1,
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 10_000,
}
"""Socket options with which a machine that is gone without a word is noticed after about 10 s."""
READ_BYTES = 64 * 1024
MOST_BYTES = 64 * 1024 * 1024
"""A longer answer is no answer of a broker."""


class UnreachableError(Exception):
    """A broker cannot be reached, so no request was sent."""


class Answer(Protocol):
    """An answer of kafka-python, whose fields depend on the request."""

    def __getattr__(self, name: str) -> Any: ...


class Connection:
    """A connection to one broker; used by one thread, with one request at a time."""

    def __init__(self, host: str, port: int, login: Login, limit_s: float = CONNECT_S) -> None:
        """Connect and log in within a time limit.

        Raises:
            UnreachableError: the broker does not answer.
            KafkaException: the broker refuses the login.
        """
        self.features: dict[str, int] = {}
        """Levels of the cluster's features that were finalized when the connection was made."""
        self._address = f"{host}:{port}"
        self._versions: dict[int, int] = {ApiVersionsRequest.API_KEY: 3}
        self._number = 0
        """Number of the last request."""
        self._waiting = ""
        """Name of a request that has no answer yet."""
        self._received = bytearray()
        self._ends = float("inf")
        self._client_id = login.client_id.encode()
        deadline = time.monotonic() + limit_s
        try:
            self._socket = _connected(host, port, deadline)
        except (OSError, UnicodeError) as fault:  # the latter: a name that is none
            raise UnreachableError(f"{self._address}: {fault}") from fault
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name, value in KEEP_ALIVE.items():
                if hasattr(socket, name):  # not all systems have all
                    level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
                    self._socket.setsockopt(level, getattr(socket, name), value)
            if login.tls is not None:
                self._socket = login.tls.wrap_socket(self._socket, server_hostname=host)
            self._negotiate(deadline)
            if login.mechanism:
                self._log_in(login, host, deadline)
        except ssl.SSLCertVerificationError as fault:
            self.close()
            raise KafkaException(KafkaError(KafkaError._SSL, f"{self._address}: {fault}")) from fault
        except OSError as fault:
            self.close()
            raise UnreachableError(f"{self._address}: {fault}") from fault
        except KafkaException as fault:
            self.close()
            if fault.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                raise UnreachableError(f"{self._address}: {fault.args[0].str()}") from fault
            raise

    @property
    def usable(self) -> bool:
        """Whether a request can be sent: neither the connection nor its session has ended."""
        if self._waiting or self._socket.fileno() < 0 or time.monotonic() > self._ends:
            return False
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False  # the end of the stream, or bytes that no request asked for

    def ask(self, message: ApiMessage, deadline: float, most: int | None = None) -> Answer:
        """Send a message of kafka-python, of version `most` at most; return its answer.

        Raises:
            KafkaException: as `send` and `receive`.
        """
        version = min(self._versions.get(message.API_KEY, -1), message.max_version)
        deadline = min(deadline, time.monotonic() + ASK_S)
        message.with_header(correlation_id=self._number + 1, client_id=self._client_id.decode())
        content = message.encode(version if most is None else min(version, most), header=True)
        self._send(message.name, content, deadline)
        answer: Answer = message.header.get_response_class().decode(self.receive(deadline), header=True)
        return answer

    def send(self, request: Request, deadline: float) -> None:
        """Send a request; `receive` must be called next.

        Args:
            deadline: on the monotonic clock.

        Raises:
            KafkaException: the request may have been sent in part.
            StoppedError: the same, as `pauses.look`.
        """
        header = HEADER.pack(request.api, request.version, self._number + 1, len(self._client_id))
        self._send(request.name, header + self._client_id + NO_TAGS + request.body, deadline)

    def receive(self, deadline: float) -> bytes:
        """Return the answer to the request that was sent, from the request's number on.

        Raises:
            KafkaException: none came in time, or the connection has ended: what became of the request is
                unknown.
            StoppedError: as `pauses.look`.
        """
        try:
            while len(self._received) < FRAME.size:
                self._read(deadline)
            length, number = FRAME.unpack_from(self._received)
            if number != self._number or not NUMBER.size <= length <= MOST_BYTES:
                raise ConnectionError(f"{length} bytes to request {number} are not the answer")
            while len(self._received) < NUMBER.size + length:
                self._read(deadline)
        except OSError as fault:
            raise self._lost(fault) from fault
        answer = bytes(self._received[NUMBER.size :])
        self._received.clear()
        self._waiting = ""
        return answer

    def close(self) -> None:
        """Close without waiting for an answer."""
        self._socket.close()

    def _send(self, name: str, content: bytes, deadline: float) -> None:
        self._number += 1
        self._waiting = name
        unsent = memoryview(NUMBER.pack(len(content)) + content)
        try:
            while unsent:
                unsent = unsent[self._in_slices(deadline, partial(self._socket.send, unsent)) :]
        except OSError as fault:
            raise self._lost(fault) from fault

    def _read(self, deadline: float) -> None:
        more = self._in_slices(deadline, lambda: self._socket.recv(READ_BYTES))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        self._received += more

    def _in_slices(self, deadline: float, transfer: Callable[[], T]) -> T:
        """Send or receive some bytes; looks at the stop request again and again until the broker is ready."""
        while True:
            self._limit(min(deadline, time.monotonic() + SLICE_S))
            try:
                return transfer()
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise
            pauses.look()

    def _limit(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit is over")
        self._socket.settimeout(left)

    def _lost(self, fault: OSError) -> KafkaException:
        self.close()
        code = KafkaError._TIMED_OUT if isinstance(fault, TimeoutError) else KafkaError._TRANSPORT
        return KafkaException(KafkaError(code, f"{self._waiting} to {self._address} got no answer: {fault}"))

    def _negotiate(self, deadline: float) -> None:
        answer = self.ask(
            ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version="1"), deadline
        )
        require(answer.error_code, "the broker's versions")
        self._versions = {key.api_key: key.max_version for key in answer.api_keys}
        if self._versions.get(FindCoordinatorRequest.API_KEY, 0) < OLDEST:
            text = f"{self._address} is older than Kafka 3.0"
            raise KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE, text))
        self.features = {
            feature.name: feature.max_version_level for feature in answer.finalized_features or ()
        }

    def _log_in(self, login: Login, host: str, deadline: float) -> None:
        answer = self.ask(SaslHandshakeRequest(mechanism=login.mechanism), deadline, most=1)
        require(answer.error_code, f"SASL mechanism {login.mechanism}; the broker has {answer.mechanisms}")
        try:
            mechanism = login.conversation(host)
            while not mechanism.is_done():
                answer = self.ask(SaslAuthenticateRequest(mechanism.auth_bytes()), deadline, most=1)
                require(answer.error_code, f"SASL login: {answer.error_message}")
                mechanism.receive(answer.auth_bytes)
            if not mechanism.is_authenticated():
                raise ValueError("the broker has not proved who it is")
        except (OSError, KafkaException, FraudError):
            raise
        except Exception as fault:  # of the mechanism: an expired ticket, a missing package ...
            text = f"SASL login at {self._address}: {fault}"
            raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, text)) from fault
        if answer.session_lifetime_ms:
            self._ends = time.monotonic() + SESSION * answer.session_lifetime_ms / 1000


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first of a host's addresses that answers within its share of the time that is left.

    With two addresses a silent one, of a network that is cut off, must not take all of the time.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(max(0.001, (deadline - time.monotonic()) / left))
            made.connect(address)
        except OSError as fault:
            made.close()
            last = fault
        else:
            return made
    raise last


def error_of(code: int, what: str) -> KafkaError:
    """Return the error of an answer's error code, with what it is about."""
    return KafkaError(code, f"{KafkaError(code).str()} ({what})")


def require(code: int, what: str) -> None:
    """Raise a KafkaException if an answer's error code is not 0."""
    if code:
        raise KafkaException(error_of(code, what))
