"""API documentation at `/docs` and `/openapi.json`, without scripts or files from other hosts."""

from collections.abc import Iterator
from html import escape
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import iter_route_contexts

from service.security.roles import Anyone, needed

SCHEME = {"type": "http", "scheme": "bearer", "description": "A token of `fraud tokens add`"}
CACHED = {"Cache-Control": "max-age=300"}


def install(app: FastAPI) -> None:
    """Add the two pages, and the role of each route to the OpenAPI document."""

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
                operation["responses"].pop("422", None)  # FastAPI's form is not used: see `default`
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


PROBLEM = {
    "title": "Problem",
    "type": "object",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened and what to do"},
        "code": {"type": "string", "description": "Names the kind of problem; see docs/errors.md"},
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


def page(document: dict[str, Any]) -> str:
    """Render the document as HTML."""
    title = escape(document["info"]["title"])
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<title>{title}</title><link rel="stylesheet" href="/docs.css"></head><body><main>',
            f"<h1>{title} {escape(document['info']['version'])}</h1>",
            "<p>Send <code>Authorization: Bearer TOKEN</code> (<code>fraud tokens add</code>). Answers from "
            "400 on are problem details (RFC 9457) with a <code>code</code>. For programs: "
            '<a href="/openapi.json">/openapi.json</a>.</p>',
            *_operations(document),
            "</main></body></html>",
        )
    )


def _operations(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            roles = [role for needs in operation["security"] for role in needs["bearer"]]
            yield (
                f'<section><h2><span class="method">{escape(method.upper())}</span> '
                f"<code>{escape(path)}</code> "
                f'<span class="role">{escape(roles[0] if roles else "everyone")}</span></h2>'
                f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>"
            )
            if parameters := operation.get("parameters"):
                rows = "".join(
                    f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(parameter['in'])}</td>"
                    f"<td>{'required' if parameter.get('required') else ''}</td>"
                    f"<td>{escape(parameter.get('description', ''))}</td></tr>"
                    for parameter in parameters
                )
                yield (
                    "<table><thead><tr><th>parameter</th><th>in</th><th></th><th>meaning</th></tr></thead>"
                    f"<tbody>{rows}</tbody></table>"
                )
            yield "</section>"
