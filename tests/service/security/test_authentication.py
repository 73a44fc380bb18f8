"""Without a tokens file, routes with a role serve only this machine, but no proxy on it.

Pages of other origins cannot change state.
"""

import pytest
from fastapi.testclient import TestClient
from harness.local_client import LocalClient
from security_world import sidecar

from service.security.authentication import is_loopback
from service.security.roles import Operator, Role, require

pytestmark = pytest.mark.unit


def changing() -> LocalClient:
    """A client of a sidecar with routes that change state."""
    app = sidecar()

    @app.post("/change")
    def change(caller: Operator) -> dict[str, str]:
        return {"name": caller.name, "role": caller.role.word, "from": caller.origin}

    @app.post("/promote", dependencies=[require(Role.ADMIN)])
    def promote() -> None: ...

    return LocalClient(app)


def test_this_machine_is_admin() -> None:
    assert changing().post("/change").json() == {"name": "local", "role": "admin", "from": "127.0.0.1"}
    assert changing().post("/promote").status_code == 200


@pytest.mark.parametrize("address", ["10.0.0.7", "192.168.1.1", "testclient", "", "::ffff:10.0.0.7"])
def test_others_are_refused(address: str) -> None:
    other = TestClient(sidecar(), base_url="http://127.0.0.1", client=(address, 1))
    assert other.get("/metrics").json()["code"] == "local_only"
    assert other.get("/healthz").status_code == 200


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host"])
def test_a_request_through_a_proxy_is_refused(name: str) -> None:
    answer = LocalClient(sidecar()).get("/metrics", headers={name: "127.0.0.1"})
    assert (answer.status_code, answer.json()["code"]) == (403, "local_only")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8000", "localhost.evil.example", "[", ""]
)
def test_a_foreign_name_that_resolves_to_this_machine_is_refused(host: str) -> None:
    assert LocalClient(sidecar()).get("/metrics", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000"])
def test_names_of_this_machine_are_served(host: str) -> None:
    assert LocalClient(sidecar()).get("/metrics", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9000", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_origins_cannot_change_state(headers: dict[str, str], status: int) -> None:
    answer = changing().post("/change", headers=headers)
    assert answer.status_code == status
    assert status == 200 or answer.json()["code"] == "cross_site"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("localhost", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("host", False),
        ("", False), ("127.1", False),
    ],
)  # fmt: skip
def test_loopback_addresses_are_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
