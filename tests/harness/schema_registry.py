"""A schema registry over HTTP, with the part of Confluent's REST API that producers and tools read."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote


class Registry:
    """Subjects and their versions."""

    def __init__(self, authorization: str = "") -> None:
        self.authorization = authorization
        """What requests must have in the header of this name."""
        self.url = ""
        self._subjects: dict[str, list[dict[str, Any]]] = {}

    def register(self, subject: str, schema_id: int, schema: Any, **more: Any) -> None:
        """Add a version to a subject; `more` as in the answers, such as schemaType and references."""
        versions = self._subjects.setdefault(subject, [])
        fields = {"subject": subject, "version": len(versions) + 1, "id": schema_id}
        versions.append({**fields, "schema": json.dumps(schema), **more})

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and body of the answer to a GET."""
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["subjects", subject, "versions", version] if subject in self._subjects:
                versions = self._subjects[subject]
                if version == "latest":
                    return 200, versions[-1]
                if version.isdecimal() and 1 <= int(version) <= len(versions):
                    return 200, versions[int(version) - 1]
                return 404, {"error_code": 40402, "message": "Version not found."}
        return 404, {"error_code": 40401, "message": f"Subject {path!r} not found."}


@contextmanager
def served(registry: Registry) -> Iterator[Registry]:
    """Serve a registry on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path)
            if registry.authorization and self.headers["Authorization"] != registry.authorization:
                status, body = 401, {"error_code": 401, "message": "Unauthorized"}
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
