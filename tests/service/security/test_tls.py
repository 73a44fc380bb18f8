"""Tokens over TLS, as the process serves them."""

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from certificates import certificate

from service.security import tokens
from service.security.roles import Role

pytestmark = pytest.mark.integration


def test_the_process_serves_tokens_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    secret = tokens.add(tmp_path / "tokens", "alice", Role.VIEWER, "root", 1)
    arguments = [
        "--tokens-file",
        str(tmp_path / "tokens"),
        "--tls-cert",
        str(cert),
        "--tls-key",
        str(key),
        "--port",
        "0",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.cli", "serve", "--bootstrap-servers", "127.0.0.1:1", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("sidecar: https://127.0.0.1:"), line or process.communicate()
        url = line.split()[1]
        trusted = ssl.create_default_context(cafile=str(cert))

        def get(path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
            asked = urllib.request.Request(url + path, headers=headers)
            try:
                with urllib.request.urlopen(asked, timeout=20, context=trusted) as answer:
                    return answer.status, dict(answer.headers), answer.read()
            except urllib.error.HTTPError as error:
                return error.code, dict(error.headers), error.read()

        status, headers, body = get("metrics")
        assert (status, json.loads(body)["code"]) == (401, "missing_token")
        assert headers["strict-transport-security"] == "max-age=31536000"
        assert "server" not in {name.lower() for name in headers}
        # where tokens are asked for, no header makes anybody local
        assert get("metrics", **{"X-Forwarded-For": "127.0.0.1"})[0] == 401
        assert get("metrics", Authorization=f"Bearer {secret}")[0] == 200
        assert get("v1/audit", Authorization=f"Bearer {secret}")[0] == 403
    finally:
        process.terminate()
        process.communicate(timeout=30)
