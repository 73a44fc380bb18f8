"""The table of rights, cell by cell: every route of the application, every kind of caller."""

import re
from pathlib import Path

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from security_world import bearer, client, secrets_of, sidecar

from service.security.roles import Role, Viewer, needed, require_declared_roles

pytestmark = pytest.mark.unit

OPEN = {
    "/", "/page/x", "/v1/caller", "/livez", "/healthz", "/readyz", "/openapi.json"
}  # fmt: skip
"""Routes that need no token: probes, files of the status page, the caller's identity, the API description."""


def cells(app: FastAPI) -> list[tuple[str, str, Role | None]]:
    """(method, path, role) of every operation."""
    return [
        (method, re.sub(r"\{[^}]*\}", "x", context.path_format or ""), needed(context))
        for context in iter_route_contexts(app.routes)
        for method in context.methods or ()
    ]


def test_each_route_accepts_exactly_its_roles(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path / "tokens.json")
    app = sidecar(tmp_path / "tokens.json")
    table = cells(app)
    assert {path for _, path, role in table if role is None} <= OPEN
    assert {path for _, path, role in table if role is Role.ADMIN} >= {"/v1/audit"}
    assert {path for _, path, role in table if role is not None} >= {"/metrics", "/v1/progress", "/v1/audit"}
    wrong = []
    with_token = {kind: bearer(secret) for kind, secret in secrets.items()} | {"none": {}}
    asking = client(app)
    for method, path, role in table:
        for kind, headers in with_token.items():
            answer = asking.request(method, path, headers=headers)
            known = kind in [known_role.word for known_role in Role]
            expected = None
            if role is not None and not known:
                expected = (401, "missing_token" if kind == "none" else "invalid_token")
            elif role is not None and Role.of(kind) < role:
                expected = (403, "insufficient_role")
            code = answer.json().get("code") if "problem" in answer.headers["content-type"] else None
            refused = (answer.status_code, code) if answer.status_code in (401, 403) else None
            if refused != expected:
                wrong.append((method, path, kind, refused, expected))
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"].startswith('Bearer realm="card-fraud"')
    assert not wrong
    assert len(table) * len(with_token) >= 9 * 7


def test_viewers_can_only_read(tmp_path: Path) -> None:
    secrets_of(tmp_path / "tokens.json")
    for method, path, role in cells(sidecar(tmp_path / "tokens.json")):
        assert method in ("GET", "HEAD") or (role is not None and role >= Role.OPERATOR), path


def test_a_route_that_declares_no_role_is_refused_wherever_it_is() -> None:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/a")
    def declared(_: Viewer) -> None: ...

    require_declared_roles(app)
    router = APIRouter(prefix="/v1")

    @router.post("/b")
    def forgot() -> None: ...

    app.include_router(router)
    with pytest.raises(RuntimeError, match="/v1/b declares no role"):
        require_declared_roles(app)
    mounted = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    mounted.mount("/c", FastAPI())
    with pytest.raises(RuntimeError, match="/c declares no role"):
        require_declared_roles(mounted)


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Basic {}", "{}", "Bearer {} {}", "Bearer " + "x" * 10_000, "Bearer \xff"]
)
def test_malformed_authorization_headers_are_refused(header: str, tmp_path: Path) -> None:
    secret = secrets_of(tmp_path / "tokens.json")["admin"]
    value = header.replace("{}", secret).encode("latin-1")
    answer = client(sidecar(tmp_path / "tokens.json")).get("/metrics", headers={"Authorization": value})
    assert (answer.status_code, answer.json()["code"]) == (401, "invalid_token")


def test_two_authorization_headers_are_refused(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path / "tokens.json")
    headers = [("Authorization", f"Bearer {secrets[name]}") for name in ("viewer", "admin")]
    assert client(sidecar(tmp_path / "tokens.json")).get("/metrics", headers=headers).status_code == 401


def test_reasons_of_readiness_are_for_viewers(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path / "tokens.json")
    asking = client(sidecar(tmp_path / "tokens.json"))
    assert "reasons" not in asking.get("/readyz").json()
    assert asking.get("/readyz", headers=bearer(secrets["viewer"])).json()["reasons"]
    assert asking.get("/readyz").status_code == 503


def test_a_token_revoked_while_the_sidecar_runs_is_refused(tmp_path: Path) -> None:
    from service.security import tokens

    path = tmp_path / "tokens.json"
    secrets = secrets_of(path)
    asking = client(sidecar(path))
    assert asking.get("/metrics", headers=bearer(secrets["viewer"])).status_code == 200
    tokens.revoke(path, "viewer", "root", 1)
    assert asking.get("/metrics", headers=bearer(secrets["viewer"])).status_code == 401
    path.write_text("{")
    answer = asking.get("/metrics", headers=bearer(secrets["admin"]))
    assert (answer.status_code, answer.json()["code"]) == (503, "tokens_unreadable")
    assert str(path) not in answer.text


def test_the_api_description_has_the_role_of_each_operation(tmp_path: Path) -> None:
    secrets_of(tmp_path / "tokens.json")
    app = sidecar(tmp_path / "tokens.json")
    asking = client(app)
    paths = asking.get("/openapi.json").json()["paths"]
    described = {
        (method.upper(), re.sub(r"\{[^}]*\}", "x", path)): operation.get("security", [])
        for path in paths
        for method, operation in paths[path].items()
    }
    roles = {(method, path): [{"bearer": [role.word]}] if role else [] for method, path, role in cells(app)}
    assert described == {operation: roles[operation] for operation in described}
    assert described["GET", "/v1/audit"] == [{"bearer": ["admin"]}]
    assert described["GET", "/healthz"] == []


def test_no_page_loads_files_from_other_hosts(tmp_path: Path) -> None:
    """FastAPI's documentation pages would, and banks' networks have no internet."""
    secrets_of(tmp_path / "tokens.json")
    asking = client(sidecar(tmp_path / "tokens.json"))
    assert [asking.get(path).status_code for path in ("/docs", "/redoc")] == [404, 404]
    assert "http" not in asking.get("/").text
