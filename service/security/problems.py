"""Problem details (RFC 9457), the form of every error answer, except the 503 of `/readyz`."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from confluent_kafka import KafkaException
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from feature_store.errors import FraudError
from service.security.headers import SAFE
from streaming_job.log.clients import describe

MEDIA_TYPE = "application/problem+json"
LONGEST_PATH = 256
"""Maximum number of characters of the request path that an answer contains."""


class Problem(HTTPException):
    """An error answer, which may be raised anywhere in a route."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        """Describe the problem.

        Args:
            status: HTTP status, 400 to 599.
            code: kind of problem, for programs; listed in docs/errors.md.
            detail: what happened and what to do, for people; nothing secret.
            more: further members of the answer (RFC 9457, section 3.2).
        """
        super().__init__(status, detail, dict(headers or {}))
        self.code = code
        self.more = more


def answer(problem: Problem, path: str) -> Response:
    """Create the response for a problem at a path."""
    return JSONResponse(members(problem, path), problem.status_code, problem.headers, MEDIA_TYPE)


def members(problem: Problem, path: str) -> dict[str, Any]:
    """Return the members of a problem at a path (RFC 9457, section 3.1)."""
    status = HTTPStatus(problem.status_code)
    return {
        "type": f"/openapi.json#{problem.code}",
        "title": status.phrase,
        "status": status.value,
        "detail": problem.detail,
        "code": problem.code,
        "instance": quote(path[:LONGEST_PATH], errors="replace"),
        **problem.more,
    }


def install(app: FastAPI) -> None:
    """Make an application answer every error as a problem."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return answer(error if isinstance(error, Problem) else _of_framework(error, request), _path(request))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # without the input: it may contain secrets, which must not reach the logs of proxies and clients
        faults = [{"loc": [str(part) for part in item["loc"]], "msg": item["msg"]} for item in error.errors()]
        first = f"{'.'.join(faults[0]['loc'])}: {faults[0]['msg']}" if faults else "it is not as described"
        if faults and faults[0]["loc"] == ["body"] and "json" not in request.headers.get("content-type", ""):
            first = "its body is not declared as JSON; send it with Content-Type: application/json"
        detail = f"the request is not valid: {first}; see /openapi.json"
        return answer(Problem(422, "invalid_request", detail, errors=faults), _path(request))

    @app.exception_handler(FraudError)
    async def ours(request: Request, error: FraudError) -> Response:
        # errors may define their own status and check
        status = getattr(error, "status", 500)
        return answer(Problem(status, getattr(error, "check", "") or "failed", str(error)), _path(request))

    @app.exception_handler(KafkaException)
    async def no_broker(request: Request, error: KafkaException) -> Response:
        detail = f"the brokers did not answer: {describe(error)}; check them, then repeat the request"
        return answer(Problem(503, "broker_unavailable", detail), _path(request))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, _: Exception) -> Response:
        # the server logs the traceback; the client gets none. This answer bypasses all
        # middlewares, so the security headers are added here
        detail = "a defect of the sidecar; its log has the traceback"
        return answer(Problem(500, "internal_error", detail, SAFE), _path(request))


def _path(request: Request) -> str:
    return str(request.scope.get("path", ""))


def _of_framework(error: HTTPException, request: Request) -> Problem:
    """Convert an error that the framework raised into a problem."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem(404, "not_found", "there is nothing at this path; see /openapi.json")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "").split(", ")
        more = ["HEAD"] if "GET" in allowed and "HEAD" not in allowed else []
        detail = f"{request.method} is not for this path; see /openapi.json"
        return Problem(405, "method_not_allowed", detail, {"Allow": ", ".join([*allowed, *more])})
    if error.status_code == HTTPStatus.BAD_REQUEST:
        # the only such error of FastAPI: the body cannot be decoded
        detail = "the body is no JSON in UTF-8, or is nested too deep; see /openapi.json"
        return Problem(422, "invalid_request", detail, errors=[{"loc": ["body"], "msg": "no JSON in UTF-8"}])
    return Problem(error.status_code, "failed", str(error.detail), error.headers)
