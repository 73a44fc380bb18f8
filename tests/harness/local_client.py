"""An HTTP client on the sidecar's machine: the sidecar serves it without a tokens file."""

from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient


class LocalClient(TestClient):
    """FastAPI's client, with an address and a Host of the loopback interface."""

    def __init__(self, app: FastAPI, **more: Any) -> None:
        super().__init__(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 50_000), **more)
