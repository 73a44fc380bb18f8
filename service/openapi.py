"""The OpenAPI document at `/openapi.json`: FastAPI's, with the form of a problem, and examples of answers."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from service.problem_codes import TABLE
from service.security.problems import MEDIA_TYPE, Problem, members
from service.security.roles import Anyone

CACHED = {"Cache-Control": "max-age=300"}
_PROBLEM_CONTENT: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/Problem"}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "A problem (RFC 9457)", "content": {MEDIA_TYPE: _PROBLEM_CONTENT}}
}
"""The `responses` argument of the application; with it, FastAPI describes no 422 of its own."""


def install(app: FastAPI) -> None:
    """Add the route; FastAPI's own cannot declare a role."""

    @app.get("/openapi.json", include_in_schema=False)
    def openapi(_: Anyone) -> JSONResponse:
        document = app.openapi()  # cached by FastAPI
        document["components"]["schemas"]["Problem"] = PROBLEM
        return JSONResponse(document, headers=CACHED)


def example(
    answer: Any, status: int = 200, description: str = "", media_type: str = "application/json"
) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` argument of a route with an example answer.

    Args:
        answer: the answer; a text if it is not JSON.
        description: description of the answer; default: FastAPI's.
    """
    described = {"description": description} if description else {}
    return {status: {**described, "content": {media_type: {"example": answer}}}}


def problem(problem: Problem, path: str) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` argument of a route with an example of a problem."""
    status = HTTPStatus(problem.status_code)
    content = {**_PROBLEM_CONTENT, "example": members(problem, path)}
    return {status.value: {"description": status.phrase, "content": {MEDIA_TYPE: content}}}


PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "type": "object",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened and what to do"},
        "code": {
            "type": "string",
            "description": "Kind of problem",
            "anyOf": [
                {"$anchor": code, "const": code, "description": f"{row.what_happened} {row.what_to_do}"}
                for row in TABLE
                for code in row.codes
            ],
        },
        "instance": {"type": "string", "format": "uri-reference"},
    },
    "required": ["type", "title", "status", "detail", "code", "instance"],
    "examples": [
        members(
            Problem(403, "insufficient_role", "this needs the role admin; alice is operator"), "/v1/audit"
        )
    ],
}
"""Schema of a problem. The fragment of a problem's `type` is the anchor of its code here."""
