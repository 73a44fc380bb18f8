"""API documentation at `/docs` and `/openapi.json`: no scripts at all, and no files from other hosts."""

from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import iter_route_contexts

from service.api_page import page
from service.security.roles import Anyone, needed

SCHEME = {"type": "http", "scheme": "bearer", "description": "A token created by `fraud tokens add`"}
CACHED = {"Cache-Control": "max-age=300"}


def install(app: FastAPI) -> None:
    """Add the documentation routes; the OpenAPI document states the role that each operation needs."""

    @app.get("/openapi.json", include_in_schema=False)
    def openapi(_: Anyone) -> JSONResponse:
        return JSONResponse(described(app), headers=CACHED)

    @app.get("/docs", include_in_schema=False)
    def docs(_: Anyone) -> HTMLResponse:
        return HTMLResponse(page(described(app)), headers=CACHED)

    @app.get("/docs.css", include_in_schema=False)
    def style(_: Anyone) -> Response:
        text = files("service").joinpath("api_docs.css").read_text()
        return Response(text, media_type="text/css", headers=CACHED)


def described(app: FastAPI) -> dict[str, Any]:
    """Return the application's OpenAPI document (3.1), with the role that each operation needs."""
    document: dict[str, Any] = app.openapi()  # cached by FastAPI
    components = document.setdefault("components", {})
    if "securitySchemes" in components:
        return document
    components["securitySchemes"] = {"bearer": SCHEME}
    for context in iter_route_contexts(app.routes):
        role = needed(context)
        for method in context.methods or ():
            operation = document["paths"].get(context.path_format, {}).get(method.lower())
            if operation is not None:
                operation["security"] = [] if role is None else [{"bearer": [role.word]}]
                _drop_framework_error(operation["responses"])
                operation["responses"]["default"] = {
                    "description": "A problem (RFC 9457)",
                    "content": {
                        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                    },
                }
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = PROBLEM
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    return document


def _drop_framework_error(responses: dict[str, Any]) -> None:
    """Remove FastAPI's own 422 response, which is never sent: errors have the form of `default`."""
    if "application/json" in responses.get("422", {}).get("content", {}):
        del responses["422"]


PROBLEM = {
    "title": "Problem",
    "type": "object",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened and what to do"},
        "code": {"type": "string", "description": "Kind of problem; see docs/errors.md"},
        "instance": {"type": "string", "format": "uri-reference"},
    },
    "required": ["type", "title", "status", "detail", "code", "instance"],
    "examples": [
        {
            "type": "/docs#insufficient_role",
            "title": "Forbidden",
            "status": 403,
            "detail": "this needs the role admin; alice is operator",
            "code": "insufficient_role",
            "instance": "/v1/audit",
        }
    ],
}
