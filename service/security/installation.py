"""The security of an application: middleware, audit logs and the forms of problems, in their order."""

import time
from collections.abc import Callable

from fastapi import FastAPI

from service.security import audit_api, problems
from service.security.audit_log import AuditLog
from service.security.authentication import Authentication
from service.security.headers import SafeHeaders
from service.security.limits import BodyLimit, RateLimit, TokenBuckets
from service.security.tokens import TokensFile
from service.settings import ServiceSettings

PROBES = frozenset({"/livez", "/healthz"})
"""Paths without a rate limit."""


def install(app: FastAPI, settings: ServiceSettings, clock: Callable[[], float] = time.time) -> None:
    """Secure an application; each of its routes must then declare a role (roles.require_declared_roles)."""
    tokens = None if settings.tokens_file is None else TokensFile(settings.tokens_file)
    problems.install(app)
    app.state.audit_log = AuditLog(settings)
    app.state.refusals = AuditLog(settings, settings.topics.audit_refusals)
    app.include_router(audit_api.router)
    # the middleware added last sees a request first
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    if settings.rate_per_s > 0:
        buckets = TokenBuckets(settings.rate_per_s, settings.rate_burst)
        app.add_middleware(RateLimit, buckets=buckets, clock=time.monotonic, exempt=PROBES)
    app.add_middleware(Authentication, tokens=tokens, clock=clock)
    app.add_middleware(SafeHeaders, tls=settings.tls_cert is not None)
