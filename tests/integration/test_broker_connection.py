"""Connections of the transactional producer to a real broker: through TLS, with logins, and when they end."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from harness.settings_of_nowhere import settings
from harness.tls_front import HOST, Certificate, certificate, tls_front
from kafka.protocol.metadata import MetadataRequest

from deploy.local.stack import Endpoints
from streaming_job.protocol import connection as module
from streaming_job.protocol.cluster import Cluster
from streaming_job.protocol.connection import Connection, UnreachableError
from streaming_job.protocol.login import Login
from streaming_job.runtime import pauses
from streaming_job.runtime.pauses import StoppedError
from streaming_job.transaction import producer, requests
from streaming_job.transaction.producer import SinkError

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(stack: Endpoints) -> int:
    return int(stack.bootstrap_servers.rpartition(":")[2])


@pytest.fixture
def authority(tmp_path: Path) -> Certificate:
    return certificate(tmp_path, "broker")


@pytest.fixture
def front(broker: int, authority: Certificate) -> Iterator[int]:
    with tls_front(broker, authority) as port:
        yield port


def login(**named: str) -> Login:
    return Login.from_settings({name.replace("_", "."): value for name, value in named.items()})


def brokers_of(connection: Connection) -> int:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    return len(connection.ask(request, time.monotonic() + 10).brokers)


def test_a_broker_answers_through_tls(front: int, authority: Certificate) -> None:
    trusting = login(security_protocol="SSL", ssl_ca_location=str(authority.certificate))
    connection = Connection(HOST, front, trusting)
    assert brokers_of(connection) == 1
    assert connection.usable
    assert brokers_of(connection) == 1
    connection.close()
    assert not connection.usable


def test_a_broker_with_an_unknown_certificate_is_refused_at_once(front: int, tmp_path: Path) -> None:
    other = certificate(tmp_path, "other")
    with pytest.raises(KafkaException, match="CERTIFICATE_VERIFY_FAILED") as refusal:
        Connection(HOST, front, login(security_protocol="SSL", ssl_ca_location=str(other.certificate)))
    assert refusal.value.args[0].code() == KafkaError._SSL


def test_a_client_shows_its_certificate(broker: int, authority: Certificate, tmp_path: Path) -> None:
    own = certificate(tmp_path, "job", "secret")
    files = {
        "security_protocol": "SSL",
        "ssl_ca_location": str(authority.certificate),
        "ssl_certificate_location": str(own.certificate),
        "ssl_key_location": str(own.key),
        "ssl_key_password": "secret",
    }
    with tls_front(broker, authority, clients=own) as port:
        assert brokers_of(Connection(HOST, port, login(**files))) == 1
        with pytest.raises(UnreachableError):
            Connection(HOST, port, login(**dict(list(files.items())[:2])))


def test_a_wrong_password_is_named_at_once(stack: Endpoints) -> None:
    assert stack.guarded is not None
    server, client = stack.guarded
    host, _, port = server.rpartition(":")
    Connection(host, int(port), Login.from_settings(client)).close()
    with pytest.raises(KafkaException, match="Authentication failed") as refusal:
        Connection(host, int(port), Login.from_settings({**client, "sasl.password": "wrong"}))
    assert refusal.value.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED


def test_a_port_that_speaks_no_kafka_is_a_broker_that_cannot_be_reached(
    front: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 1.0)
    with pytest.raises(UnreachableError):  # it waits for TLS
        Connection(HOST, front, Login())


def test_a_login_that_fails_in_its_own_code_is_a_named_error(stack: Endpoints) -> None:
    """GSSAPI needs a package that is not installed here."""
    assert stack.guarded is not None
    server, client = stack.guarded
    host, _, port = server.rpartition(":")
    with pytest.raises(KafkaException, match="SASL"):
        Connection(host, int(port), Login.from_settings({**client, "sasl.mechanism": "GSSAPI"}))


def test_a_broker_that_never_answers_ends_at_the_limit_and_at_a_stop_request(
    broker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(HOST, broker, Login())
    monkeypatch.setattr(module, "SLICE_S", 0.05)
    silent = requests.end(requests.Identity("none", 1, 1), implicit=True)
    connection.send(silent, time.monotonic() + 5)
    connection.receive(time.monotonic() + 5)  # an answer, for comparison
    connection._waiting = "a request that was lost"
    with pauses.ended_by(lambda: True, grace_s=0.2), pytest.raises(StoppedError):
        connection.receive(time.monotonic() + 5)
    assert not connection.usable
    with pytest.raises(KafkaException, match=r"a request that was lost .* got no answer") as late:
        connection.receive(time.monotonic() + 0.2)
    assert late.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_broker_that_reads_nothing_ends_at_the_limit_and_at_a_stop_request(
    broker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE_S", 0.05)
    large = requests.Request("Produce", 0, 9, bytes(16 << 20))

    def stalled() -> Connection:
        connection = Connection(HOST, broker, Login())
        connection.close()
        connection._socket, _ = ends = socket.socketpair()
        kept.append(ends)
        return connection

    kept: list[tuple[socket.socket, socket.socket]] = []
    connection = stalled()
    with pauses.ended_by(lambda: True, grace_s=0.2), pytest.raises(StoppedError):
        connection.send(large, time.monotonic() + 5)
    assert not connection.usable
    with pytest.raises(KafkaException, match=r"Produce .* got no answer") as late:
        stalled().send(large, time.monotonic() + 0.2)
    assert late.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_silent_address_of_a_host_leaves_time_for_another_one(
    broker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as held:
        full = held.enter_context(socket.create_server((HOST, 0), backlog=0)).getsockname()
        with contextlib.suppress(TimeoutError):  # the kernel accepts some without the server
            while True:
                held.enter_context(socket.create_connection(full, 0.3))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (full, (HOST, broker))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert brokers_of(Connection("dual-stack", broker, Login(), 2.0)) == 1
        del found[1]
        with pytest.raises(UnreachableError, match="timed out"):
            Connection("dual-stack", broker, Login(), 0.3)


def test_a_host_whose_name_is_none_is_a_broker_that_cannot_be_reached() -> None:
    with pytest.raises(UnreachableError, match="label"):
        Connection("a..b", 9092, Login())


def test_a_machine_that_is_gone_is_tried_once_for_all_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0), backlog=1) as gone:  # it accepts, and never answers
        address = gone.getsockname()[:2]
        cluster = Cluster(f"{address[0]}:{address[1]}", {}, [])
        cluster._addresses = {1: address}
        cluster._leaders = {("alerts", number): 1 for number in range(12)}
        assert list(cluster.by_leader(cluster._leaders)) == [address]
        monkeypatch.setattr("streaming_job.protocol.cluster.CONNECT_S", 0.3)
        monkeypatch.setattr("streaming_job.protocol.cluster.AGAIN_S", 60.0)
        begun = time.monotonic()
        for _ in range(12):
            with pytest.raises(UnreachableError):
                cluster.leader(address, begun + 60)
        assert time.monotonic() - begun < 12 * 0.3


def test_a_server_that_closes_all_connections_is_not_asked_without_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a listener with SASL does with a client that does not log in."""
    accepted = 0
    monkeypatch.setattr(producer, "CALL_TIMEOUT_S", 1.0)
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            nonlocal accepted
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.close()
                    accepted += 1

        threading.Thread(target=serve, daemon=True).start()
        server = f"{HOST}:{listener.getsockname()[1]}"
        with pytest.raises(SinkError, match="no transactional producer"):
            producer.TransactionalProducer(settings(bootstrap_servers=server), "any")
        listener.shutdown(socket.SHUT_RDWR)
    assert accepted < 200
