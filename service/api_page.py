"""The page `/docs`: the OpenAPI document as HTML, without scripts. Pure."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from service.problem_codes import TABLE

Schema = Mapping[str, Any]


def page(document: dict[str, Any]) -> str:
    """Render the document as HTML."""
    title = escape(document["info"]["title"])
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<title>{title}</title><link rel="stylesheet" href="/docs.css"></head><body><main>',
            f"<h1>{title} {escape(document['info']['version'])}</h1>",
            "<p>Send <code>Authorization: Bearer TOKEN</code>; <code>fraud tokens add</code> makes a token. "
            "Answers with status 400 or above, except 503 of <code>/readyz</code>, are problem details "
            "(RFC 9457) with a <code>code</code>: see "
            '<a href="#problems">problems</a>. For programs: <a href="/openapi.json">/openapi.json</a>.</p>',
            *_operations(document),
            *_problems(),
            "</main></body></html>",
        )
    )


def _operations(document: dict[str, Any]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            roles = [role for needs in operation["security"] for role in needs["bearer"]]
            yield (
                f'<section><h2><span class="method">{escape(method.upper())}</span> '
                f"<code>{escape(path)}</code> "
                f'<span class="role">{escape(roles[0] if roles else "everyone")}</span></h2>'
            )
            description = operation.get("description") or operation.get("summary", "")
            yield from (f"<p>{escape(paragraph)}</p>" for paragraph in description.split("\n\n"))
            yield _table(
                ("parameter", "in", "", "meaning"),
                [
                    (
                        parameter["name"],
                        parameter["in"],
                        _required(parameter),
                        parameter.get("description", ""),
                    )
                    for parameter in operation.get("parameters", ())
                ],
            )
            yield from _body(operation.get("requestBody", {}), schemas)
            for status, answer in operation["responses"].items():
                if status.startswith("2"):
                    yield from _examples(f"Answer {status}", answer)
            yield "</section>"


def _body(body: Schema, schemas: Schema) -> Iterator[str]:
    content = body.get("content", {}).get("application/json")
    if content is None:
        return
    schema = _resolved(content.get("schema", {}), schemas)
    yield _table(("body", "type", "", "meaning"), list(_fields(schema, schemas)))
    examples = schema.get("examples", [])
    yield from _examples(
        "Body", {"content": {"application/json": {"example": next(iter(examples), None), **content}}}
    )


def _fields(schema: Schema, schemas: Schema, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield (name, type, required, description) of each field; a list's item fields follow the list."""
    for name, field in schema.get("properties", {}).items():
        is_required = _required({"required": name in schema.get("required", ())})
        yield prefix + name, _type(field), is_required, field.get("description", "")
        if (items := _resolved(field.get("items", {}), schemas)).get("properties"):
            yield from _fields(items, schemas, f"{prefix}{name}[].")


def _type(field: Schema) -> str:
    if "enum" in field:
        return " | ".join(str(word) for word in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(choice) for choice in field["anyOf"])
    return str(field.get("type", "object"))


def _resolved(schema: Schema, schemas: Schema) -> Schema:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Schema = schemas[name] if name else schema
    return found


def _required(parameter: Schema) -> str:
    return "required" if parameter.get("required") else ""


def _examples(title: str, answer: Schema) -> Iterator[str]:
    for content in answer.get("content", {}).values():
        if (example := content.get("example")) is not None:
            text = example if isinstance(example, str) else json.dumps(example, indent=2)
            yield f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code></td>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def _problems() -> Iterator[str]:
    """Explain each code; a problem's `type` is the address of its explanation."""
    yield '<section id="problems"><h2>Problems</h2><table><thead><tr><th>code</th><th>status</th>'
    yield "<th>what happened</th><th>what to do</th></tr></thead><tbody>"
    for row in TABLE:
        codes = ", ".join(f'<code id="{code}">{code}</code>' for code in row.codes)
        yield f"<tr><td>{codes}</td><td>{row.status}</td><td>{escape(row.what_happened)}</td>"
        yield f"<td>{escape(row.what_to_do)}</td></tr>"
    yield "</tbody></table></section>"
