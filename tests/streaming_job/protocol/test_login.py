"""How the transactional producer logs in: settings with librdkafka's names become those of Python."""

import base64
import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from harness import settings_of_nowhere
from harness.tls_front import certificate

from streaming_job.protocol.login import Login, LoginError, addresses
from streaming_job.runtime.preconditions import require_inputs

pytestmark = pytest.mark.unit


def test_without_settings_nothing_is_encrypted_and_nobody_logs_in() -> None:
    assert Login.from_settings({}) == Login(tls=None, mechanism="")
    assert Login.from_settings({"linger.ms": "5", "client.id": "x"}) == Login(client_id="x")


@pytest.mark.parametrize(
    ("kafka", "named"),
    [
        ({"ssl.keystore.location": "x"}, "does not know ssl.keystore.location"),
        ({"sasl.oauthbearer.config": "principal=x", "ssl.foo": "1"}, "sasl.oauthbearer.config, ssl.foo"),
        ({"https.ca.location": "x"}, "does not know https.ca.location"),
        ({"security.protocol": "https"}, "security.protocol is https"),
        (
            {"security.protocol": "ssl", "enable.ssl.certificate.verification": "no"},
            "enable.ssl.certificate.verification is no",
        ),
        (
            {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "no"},
            "ssl.endpoint.identification.algorithm is no",
        ),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism is DIGEST-MD5"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere"}, "cannot be used: .*No such file"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "method=oidc"),
        (
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "x",
            },
            "needs sasl.oauthbearer.client.secret, sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(kafka: dict[str, str], named: str) -> None:
    with pytest.raises(LoginError, match=named):
        Login.from_settings(kafka)


def test_certificates_are_verified_unless_the_operator_says_otherwise(tmp_path: Path) -> None:
    authority = certificate(tmp_path, "authority")
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
    strict = Login.from_settings(settings).tls
    assert strict is not None
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    any_name = Login.from_settings({**settings, "ssl.endpoint.identification.algorithm": "none"}).tls
    assert any_name is not None
    assert (any_name.verify_mode, any_name.check_hostname) == (ssl.CERT_REQUIRED, False)
    for no in ("false", "F", "0"):
        trusting = Login.from_settings({**settings, "enable.ssl.certificate.verification": no}).tls
        assert trusting is not None
        assert trusting.verify_mode == ssl.CERT_NONE
    for yes in ("true", "T", "1"):
        verifying = Login.from_settings({**settings, "enable.ssl.certificate.verification": yes}).tls
        assert verifying is not None
        assert (verifying.verify_mode, verifying.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("given", ["file", "text"])
def test_only_the_given_authority_is_trusted(tmp_path: Path, given: str) -> None:
    authority = certificate(tmp_path, "authority").certificate
    named = {"ssl.ca.location": str(authority)} if given == "file" else {"ssl.ca.pem": authority.read_text()}
    tls = Login.from_settings({"security.protocol": "ssl", **named}).tls
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1


def test_an_encrypted_key_without_its_password_is_an_error_and_no_question(tmp_path: Path) -> None:
    own = certificate(tmp_path, "job", "secret")
    files = {"ssl.certificate.location": str(own.certificate), "ssl.key.location": str(own.key)}
    with pytest.raises(LoginError, match="cannot be used"):
        Login.from_settings({"security.protocol": "ssl", **files})


def test_servers_are_read_as_librdkafka_reads_them() -> None:
    assert addresses("a:1, SSL://b:2,c,[::1]:3,") == [("a", 1), ("b", 2), ("c", 9092), ("::1", 3)]
    for wrong in ("", "a:b", "a:1:2", " , ", "a:0", "a:65536", "a..b:1", f"{'a' * 64}:1"):
        with pytest.raises(LoginError, match="FRAUD_BOOTSTRAP_SERVERS"):
            addresses(wrong)


def test_a_start_refuses_malformed_servers_although_others_could_be_reached() -> None:
    with pytest.raises(LoginError, match="a:b is no host:port"):
        require_inputs(settings_of_nowhere.settings(bootstrap_servers="127.0.0.1:9,a:b"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_user_and_password_reach_the_mechanism(mechanism: str, name: str) -> None:
    kafka = {
        "security.protocol": "sasl_plaintext",
        name: mechanism,
        "sasl.username": "job",
        "sasl.password": "secret",
    }
    login = Login.from_settings(kafka)
    assert login.tls is None
    first = login.conversation("broker").auth_bytes()
    first = first if isinstance(first, bytes) else first.encode()
    assert b"job" in first
    assert (b"secret" in first) == (mechanism == "PLAIN")


@pytest.fixture
def issuer() -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]]]]]]:
    """The URL of an issuer of tokens, and the requests that it got."""
    asked: list[tuple[str, dict[str, list[str]]]] = []
    lifetimes = [0, 600, 600]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], urllib.parse.parse_qs(form)))
            known = self.headers["Authorization"].endswith(base64.b64encode(b"job:secret").decode())
            self.send_response(200 if known else 401)
            self.end_headers()
            issued = {"access_token": f"token-{len(asked)}", "expires_in": lifetimes.pop(0)}
            self.wfile.write(json.dumps(issued).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token", asked
    server.shutdown()
    server.server_close()


def oidc(url: str, secret: str) -> Login:
    return Login.from_settings(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "job",
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.token.endpoint.url": url,
        }
    )


def test_a_token_of_the_issuer_is_used_until_it_is_half_as_old_as_it_may_get(
    issuer: tuple[str, list[tuple[str, dict[str, list[str]]]]],
) -> None:
    url, asked = issuer
    login = oidc(url, "secret")
    sent = [login.conversation("broker").auth_bytes() for _ in range(4)]
    assert [bytes(first).partition(b"Bearer ")[2][:7] for first in sent] == [
        b"token-1", b"token-2", b"token-2", b"token-2",
    ]  # fmt: skip
    assert asked[0][1] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_an_issuer_that_gives_no_token_counts_as_a_broker_that_cannot_be_reached(
    issuer: tuple[str, list[tuple[str, dict[str, list[str]]]]],
) -> None:
    with pytest.raises(ConnectionError, match="no token of OpenID Connect"):
        oidc(issuer[0], "wrong").conversation("broker").auth_bytes()
