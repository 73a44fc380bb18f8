import socket
from collections.abc import Iterator

import pytest

from deploy.local.errors import StackError
from deploy.local.ports import HOST, RANGE, Ports, choose, is_free

pytestmark = pytest.mark.unit

NAMES = frozenset({"kafka", "controller", "postgres", "connect"})


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        yield server.getsockname()[1]


def test_free_ports_are_all_different() -> None:
    chosen = choose(Ports(), {}, NAMES)
    assert set(chosen) == NAMES
    assert len(set(chosen.values())) == len(NAMES)
    assert all(port in RANGE and is_free(port) for port in chosen.values())


def test_ports_of_the_last_start_are_kept() -> None:
    first = choose(Ports(), {}, NAMES)
    assert choose(Ports(), first, NAMES) == first


def test_a_port_of_the_last_start_that_is_in_use_is_replaced(taken: int) -> None:
    assert choose(Ports(), {"kafka": taken}, frozenset({"kafka"}))["kafka"] != taken


def test_a_given_port_is_used_unchanged() -> None:
    free = choose(Ports(), {}, frozenset({"kafka"}))["kafka"]
    assert choose(Ports(kafka=free), {"kafka": 1}, frozenset({"kafka"})) == {"kafka": free}


def test_a_given_port_in_use_is_refused_with_a_remedy(taken: int) -> None:
    with pytest.raises(StackError, match=rf"port {taken} for postgres is in use .* choose another port"):
        choose(Ports(postgres=taken), {}, NAMES)


def test_only_ports_of_started_services_are_checked(taken: int) -> None:
    assert set(choose(Ports(postgres=taken), {}, frozenset({"kafka"}))) == {"kafka"}
