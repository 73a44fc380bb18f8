"""Roles of callers, and the dependencies by which each route declares the one that it needs."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.routing import RouteContext, iter_route_contexts

from service.security.problems import Problem

CALLER = "fraud.caller"
"""Key of the ASGI scope: a `Caller`, or the `Problem` why there is none."""


class Role(IntEnum):
    """What a caller may do; each role may do what the ones before it may."""

    VIEWER = 1
    """Read; card ids are masked."""
    OPERATOR = 2
    """See card ids; label transactions; propose, run, pause and roll back rollouts."""
    ADMIN = 3
    """Promote, withdraw, read the audit log."""

    @property
    def word(self) -> str:
        """The role in files, records and answers."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> "Role":
        """The role of a word; ValueError if it is none."""
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"no role: {word!r}") from None


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    name: str
    """Of the token; `local` where there are no tokens."""
    role: Role
    origin: str
    """Address of the client."""


class Require:
    """A dependency that lets callers of a role and above through, and answers who they are."""

    def __init__(self, role: Role | None) -> None:
        """Require a role; None: everyone is let through, and may be no known caller."""
        self.role = role

    async def __call__(self, request: Request) -> Caller | None:
        """The caller.

        Raises:
            Problem: 401 without a good token, 403 if the role is not enough.
        """
        caller = request.scope.get(CALLER)
        if self.role is None:
            return caller if isinstance(caller, Caller) else None
        if isinstance(caller, Problem):
            raise caller
        if not isinstance(caller, Caller):
            raise RuntimeError("security.install has not been called for this application")
        if caller.role < self.role:
            raise Problem(
                403,
                "insufficient_role",
                f"this needs the role {self.role.word}; {caller.name} is {caller.role.word}",
                {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
            )
        return caller


def require(role: Role) -> Require:
    """The dependency of a route that needs a role: `caller: Annotated[Caller, Depends(require(role))]`."""
    return Require(role)


Viewer = Annotated[Caller, Depends(require(Role.VIEWER))]
Operator = Annotated[Caller, Depends(require(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(require(Role.ADMIN))]
Anyone = Annotated[Caller | None, Depends(Require(None))]
"""For what has to answer without a token: probes, the page itself; None if the caller is not known."""


def declared(context: RouteContext) -> list[Require]:
    """The requirements that a route has declared; empty if it has none, or is no route of FastAPI's."""
    found: list[Require] = []

    def look(dependant: Any) -> None:
        if isinstance(dependant.call, Require):
            found.append(dependant.call)
        for below in dependant.dependencies:
            look(below)

    if (dependant := getattr(context, "dependant", None)) is not None:
        look(dependant)
    return found


def needed(context: RouteContext) -> Role | None:
    """The role that a route needs; None if it is open to everyone.

    Raises:
        RuntimeError: it declares none: a route that forgot it would be open.
    """
    found = declared(context)
    if not found:
        raise RuntimeError(f"{context.path} declares no role: give it Viewer, Operator, Admin or Anyone")
    return max((one.role for one in found if one.role is not None), default=None)


def see_all_declared(app: FastAPI) -> None:
    """See that each route of an application declares a role.

    Raises:
        RuntimeError: one does not; mounted applications cannot.
    """
    for context in iter_route_contexts(app.routes):
        needed(context)
