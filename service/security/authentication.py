"""Authentication of requests: by bearer token; without a tokens file, only this machine is served."""

import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.security.problems import Problem
from service.security.roles import CALLER, Caller, Role
from service.security.tokens import TokensError, TokensFile

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LONGEST_TOKEN = 512
OF_PROXIES = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Authentication:
    """ASGI middleware that puts the caller, or the problem of the authentication, into the scope.

    It refuses nothing itself: a route that requires a role raises the problem (`roles.Require`).
    """

    def __init__(self, app: ASGIApp, *, tokens: TokensFile | None, clock: Callable[[], float]) -> None:
        """Wrap an application.

        Args:
            tokens: tokens of the callers; None: processes of this machine are served as admin.
        """
        self._app, self._tokens, self._clock = app, tokens, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] in ("http", "websocket"):
            try:
                scope[CALLER] = self._caller(scope, Headers(scope=scope))
            except Problem as problem:
                scope[CALLER] = problem
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope, headers: Headers) -> Caller:
        origin = (scope.get("client") or ("",))[0]
        if scope.get("method") not in SAFE_METHODS:
            _refuse_other_sites(headers)
        if self._tokens is None:
            _refuse_strangers(origin, headers)
            return Caller("local", Role.ADMIN, origin)
        secret = _bearer(headers)
        try:
            token = self._tokens.find(secret)
        except TokensError:
            # not the error's text: it contains a local path, which `fraud tokens list` shows the operator
            raise Problem(
                503, "tokens_unreadable", "the tokens file cannot be used; see `fraud tokens list`"
            ) from None
        if token is None:
            raise _unauthorised("invalid_token", "this token is not known")
        state = token.state(int(self._clock() * 1000))
        if state != "active":
            raise _unauthorised("invalid_token", f"this token of {token.name} is {state}; ask for a new one")
        return Caller(token.name, token.role, origin)


def _bearer(headers: Headers) -> str:
    given = headers.getlist("authorization")
    if not given:
        raise _unauthorised("missing_token", "send `Authorization: Bearer <token>`")
    scheme, _, secret = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not 0 < len(secret.strip()) <= LONGEST_TOKEN:
        raise _unauthorised("invalid_token", "send one `Authorization: Bearer <token>`")
    return secret.strip()


def _unauthorised(code: str, detail: str) -> Problem:
    # RFC 6750, section 3.1: a request without a token is answered without an error code
    error = ', error="invalid_token"' if code == "invalid_token" else ""
    return Problem(401, code, detail, {"WWW-Authenticate": f'Bearer realm="card-fraud"{error}'})


def _refuse_strangers(origin: str, headers: Headers) -> None:
    """Without tokens, refuse requests that come from another machine or a proxy, or whose Host is not local.

    Behind a proxy on this machine every client would look local. With DNS rebinding an attacker's name
    resolves to 127.0.0.1, so a browser treats the attacker's page and the sidecar as one origin; but the
    browser sends the attacker's name as Host.
    """
    if not is_loopback(origin):
        raise Problem(
            403, "local_only", "without a tokens file only this machine is served; make one: fraud tokens add"
        )
    if any(name in headers for name in OF_PROXIES):
        raise Problem(403, "local_only", "the request came through a proxy: that needs a tokens file")
    if not is_loopback(_host(headers.get("host", ""))):
        raise Problem(
            403, "local_only", "without a tokens file only the Host 127.0.0.1, ::1 or localhost is served"
        )


def _refuse_other_sites(headers: Headers) -> None:
    """Refuse changes that a browser sends on behalf of a page of another origin."""
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    same = origin is None or _is_of_host(origin, headers.get("host", ""))
    if site not in ("none", "same-origin") or not same:
        raise Problem(403, "cross_site", "changes are not taken from pages of other origins")


def _is_of_host(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or localhost."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).is_loopback
