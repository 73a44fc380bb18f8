"""Requests with tokens to the sidecar's process, over TLS."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from certificates import certificate
from harness.sidecar_process import SidecarProcess

from service.security import tokens
from service.security.roles import Role

pytestmark = [pytest.mark.integration, pytest.mark.without_stack]


def test_the_process_serves_tokens_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    secret = tokens.add(tmp_path / "tokens", "alice", Role.VIEWER, "root", 1)
    files = {"tokens-file": tmp_path / "tokens", "tls-cert": cert, "tls-key": key}
    arguments = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    with SidecarProcess("--bootstrap-servers", "127.0.0.1:1", *arguments) as sidecar:
        assert sidecar.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(cert))

        def get(path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
            asked = urllib.request.Request(sidecar.url + path, headers=headers, method=method)
            try:
                with urllib.request.urlopen(asked, timeout=20, context=trusted) as answer:
                    return answer.status, dict(answer.headers), answer.read()
            except urllib.error.HTTPError as error:
                return error.code, dict(error.headers), error.read()

        status, headers, body = get("metrics")
        assert (status, json.loads(body)["code"]) == (401, "missing_token")
        assert headers["strict-transport-security"] == "max-age=31536000"
        assert "server" not in {name.lower() for name in headers}
        # if tokens are required, no header makes a caller local
        assert get("metrics", **{"X-Forwarded-For": "127.0.0.1"})[0] == 401
        assert get("metrics", Authorization=f"Bearer {secret}")[0] == 200
        assert get("v1/audit", Authorization=f"Bearer {secret}")[0] == 403
        for path in ("", "livez", "openapi.json"):
            whole, head = get(path), get(path, "HEAD")
            assert (head[0], head[2]) == (200, b"")
            assert head[1]["content-length"] == whole[1]["content-length"] == str(len(whole[2]))
