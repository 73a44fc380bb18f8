"""A sidecar with a tokens file of every kind of token, and an audit log in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.app import create_app
from service.security import audit, audit_api, tokens
from service.security.audit import Entry
from service.security.audit_log import AuditLog, StoredRecord
from service.security.roles import Role
from service.settings import ServiceSettings

NOW_S = 1_800_000_000.0
NOW_MS = int(NOW_S * 1000)


class MemoryAuditLog(AuditLog):
    """The log with its records in a list."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values

    def all(self) -> Iterator[StoredRecord]:
        return (StoredRecord(offset, value) for offset, value in enumerate(self.values))

    def newest(self, limit: int, before: int | None = None) -> list[StoredRecord]:
        return [record for record in self.all() if before is None or record.offset < before][::-1][:limit]


def entry(number: int = 0, **changes: Any) -> Entry:
    given: dict[str, Any] = {
        "at": NOW_MS + number,
        "actor": "alice",
        "role": "operator",
        "action": "rollout.canary_set",
        "target": f"r-{number}",
        "origin": "10.0.0.7",
        "outcome": "done",
        "detail": {"share_bp": 1000 + number},
    }
    return Entry(**{**given, **changes})


def chain(count: int) -> list[bytes]:
    values: list[bytes] = []
    for number in range(count):
        values.append(audit.next_record(values[-1] if values else None, entry(number)))
    return values


def secrets_of(path: Path) -> dict[str, str]:
    """Write a tokens file with one token of each kind; return kind -> secret, and a `wrong` one."""
    result = {
        role.word: tokens.add(path, role.word, role, "root", NOW_MS - 9, NOW_MS + 60_000) for role in Role
    }
    result["expired"] = tokens.add(path, "expired", Role.ADMIN, "root", NOW_MS - 9, NOW_MS)
    result["revoked"] = tokens.add(path, "revoked", Role.ADMIN, "root", NOW_MS - 9)
    tokens.revoke(path, "revoked", "root", NOW_MS - 1)
    result["wrong"] = tokens.PREFIX + "x" * 43
    return result


def sidecar(tokens_file: Path | None = None, **settings: Any) -> FastAPI:
    """The application; its threads are not started, and it needs no broker."""
    app = create_app(
        ServiceSettings(bootstrap_servers="127.0.0.1:1", tokens_file=tokens_file, **settings), lambda: NOW_S
    )
    log = MemoryAuditLog(chain(5))
    app.dependency_overrides[audit_api.audit_log] = lambda: log
    return app


def client(app: FastAPI) -> TestClient:
    """A client on another machine, which gets answers instead of the application's exceptions."""
    return TestClient(app, raise_server_exceptions=False, client=("10.0.0.7", 50_000))


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}
