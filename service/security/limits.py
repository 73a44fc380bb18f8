"""Limits of requests: size of the body, rate of each caller."""

import ipaddress
import math
from asyncio import wait_for
from collections import OrderedDict
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.security.problems import Problem, answer
from service.security.roles import CALLER, Caller

BODY_S = 10.0
"""Time limit for a client to send a body."""
MOST_CALLERS = 10_000
"""Maximum number of token buckets kept, one per caller; the least recently used is dropped first."""


class BodyLimit:
    """ASGI middleware that buffers bodies; refuses one too large (413), too slow (408), compressed (415)."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app, self._max = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "content-length" not in headers and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        try:
            length = headers.get("content-length", "")
            if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise Problem(
                    415,
                    "unsupported_encoding",
                    "a body must not be compressed; send it without Content-Encoding",
                    {"Accept-Encoding": "identity", "Connection": "close"},  # the body is not read
                )
            if length.isdecimal() and int(length[:20]) > self._max:
                raise self._too_large()
            replay = await wait_for(self._buffered(receive), BODY_S)
        except Problem as problem:
            await answer(problem, scope["path"])(scope, receive, send)
        except TimeoutError:
            timeout = Problem(408, "request_timeout", f"no complete body in {BODY_S:.0f} s; send it again")
            await answer(timeout, scope["path"])(scope, receive, send)
        else:
            await self._app(scope, replay, send)

    async def _buffered(self, receive: Receive) -> Receive:
        """Read the body; return a `receive` that first returns it in one message, then later messages.

        If the client has gone, the first message is its disconnect.
        """
        body, more, last = b"", True, None
        while more:
            message = await receive()
            if message["type"] != "http.request":
                last, more = message, False  # the client has gone
                break
            body += message.get("body", b"")
            if len(body) > self._max:
                raise self._too_large()
            more = message.get("more_body", False)
        first: list[Message] = [last or {"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return first.pop() if first else await receive()

        return replay

    def _too_large(self) -> Problem:
        # the rest of the body is not read, so the connection cannot be reused
        return Problem(
            413, "body_too_large", f"a body has at most {self._max} bytes", {"Connection": "close"}
        )


class TokenBuckets:
    """One token bucket per caller: initially full, refilled at a constant rate, one token per request."""

    def __init__(self, rate_per_s: float, burst: float, most: int = MOST_CALLERS) -> None:
        """Start without buckets.

        Args:
            burst: tokens of a full bucket, at least 1.
            most: maximum number of buckets kept. The caller of a dropped bucket gets a full one with its
                next request, that is, another burst; a flood from more than `most` addresses drops buckets.
        """
        self._rate, self._burst, self._most = rate_per_s, max(1.0, burst), most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, key: str, now_s: float) -> float:
        """Take a token and return 0.0; if there is none, return the seconds until the next one.

        Args:
            key: the caller.
            now_s: seconds of a monotonic clock.
        """
        left, at = self._buckets.pop(key, (self._burst, now_s))
        left = min(self._burst, left + max(0.0, now_s - at) * self._rate)
        allowed = left >= 1.0
        self._buckets[key] = (left - 1.0 if allowed else left, now_s)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._rate

    def __len__(self) -> int:
        return len(self._buckets)


class RateLimit:
    """ASGI middleware that answers 429 with Retry-After to a caller above its rate limit."""

    def __init__(
        self, app: ASGIApp, *, buckets: TokenBuckets, clock: Callable[[], float], exempt: frozenset[str]
    ) -> None:
        """Limit an application.

        Args:
            clock: seconds, monotonic.
            exempt: paths without a limit: a refused probe would make an orchestrator restart the sidecar.
        """
        self._app, self._buckets, self._clock, self._exempt = app, buckets, clock, exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] not in self._exempt:
            wait_s = self._buckets.wait_s(key_of(scope), self._clock())
            if wait_s > 0:
                after = {"Retry-After": str(math.ceil(wait_s))}
                problem = Problem(429, "rate_limited", f"too many requests; wait {wait_s:.1f} s", after)
                await answer(problem, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)


def key_of(scope: Scope) -> str:
    """Return the bucket key of a request: the token's name, else the address (of IPv6 the /64 network)."""
    caller = scope.get(CALLER)
    client = (scope.get("client") or ("",))[0]
    if isinstance(caller, Caller) and caller.name != "local":
        return f"token {caller.name}"
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return f"address {client}"
    if address.version == 6 and address.ipv4_mapped is None:
        return f"address {ipaddress.ip_network((address, 64), strict=False)}"
    return f"address {client}"
