"""Roles of callers, and the FastAPI dependencies by which a route declares the role that it needs."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Security
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import RouteContext, iter_route_contexts
from fastapi.security.base import SecurityBase

from service.security.problems import Problem

CALLER = "fraud.caller"
"""Key of the ASGI scope: the request's `Caller`, or the `Problem` that its authentication raised."""


class Role(IntEnum):
    """Permissions of a caller; each role includes the ones before it."""

    VIEWER = 1
    """Read; card ids are masked."""
    OPERATOR = 2
    """See card ids; label transactions; run backtests; propose rollouts, run them as shadow or small canary,
    pause, resume and roll them back."""
    ADMIN = 3
    """Promote, withdraw, take each step that counts as a promotion; read the audit log."""

    @property
    def word(self) -> str:
        """Name of the role in files, records and answers."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> "Role":
        """Return the role of a word; raise ValueError for an unknown word."""
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"no role: {word!r}") from None


@dataclass(frozen=True)
class Caller:
    """The authenticated sender of a request."""

    name: str
    """Name of the token; `local` without a tokens file."""
    role: Role
    origin: str
    """Address of the client."""


class Require:
    """A dependency that admits callers with a role or a higher one, and returns the caller."""

    def __init__(self, role: Role | None) -> None:
        """Require a role; None admits all callers, even unauthenticated ones."""
        self.role = role

    async def __call__(self, request: Request) -> Caller | None:
        """Return the caller; None if it is unauthenticated and no role is required.

        Raises:
            Problem: the authentication failed (401, 403 or 503), or the role is not enough (403).
        """
        caller = request.scope.get(CALLER)
        if self.role is None:
            return caller if isinstance(caller, Caller) else None
        if isinstance(caller, Problem):
            raise caller
        if not isinstance(caller, Caller):
            raise RuntimeError("security.installation.install has not been called for this application")
        if caller.role < self.role:
            raise Problem(
                403,
                "insufficient_role",
                f"this needs the role {self.role.word}; {caller.name} is {caller.role.word}",
                {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
            )
        return caller


class RequireToken(Require, SecurityBase):
    """A `Require` that FastAPI's OpenAPI document describes as a bearer token."""

    scheme_name = "bearer"
    model = HTTPBearer(description="A token created by `fraud tokens add`")


def require(role: Role) -> Any:
    """Create the dependency by which a route requires a role, as `Viewer` does."""
    return Security(RequireToken(role), scopes=[role.word])


Viewer = Annotated[Caller, require(Role.VIEWER)]
Operator = Annotated[Caller, require(Role.OPERATOR)]
Admin = Annotated[Caller, require(Role.ADMIN)]
Anyone = Annotated[Caller | None, Depends(Require(None))]
"""For routes that need no token: probes, API docs, the web page. None if the caller is unauthenticated."""


def declared(context: RouteContext) -> list[Require]:
    """Return the requirements that a route declares; empty if it declares none or is not FastAPI's."""
    requirements: list[Require] = []

    def collect(dependant: Any) -> None:
        if isinstance(dependant.call, Require):
            requirements.append(dependant.call)
        for dependency in dependant.dependencies:
            collect(dependency)

    if (dependant := getattr(context, "dependant", None)) is not None:
        collect(dependant)
    return requirements


def needed(context: RouteContext) -> Role | None:
    """Return the role that a route needs; None if it is open to all.

    Raises:
        RuntimeError: the route declares no role; without this check it would be open by mistake.
    """
    requirements = declared(context)
    if not requirements:
        raise RuntimeError(f"{context.path} declares no role: give it Viewer, Operator, Admin or Anyone")
    return max((item.role for item in requirements if item.role is not None), default=None)


def require_declared_roles(app: FastAPI) -> None:
    """Check that each route of an application declares a role.

    Raises:
        RuntimeError: a route declares no role, or an application is mounted, which cannot declare one.
    """
    for context in iter_route_contexts(app.routes):
        needed(context)
