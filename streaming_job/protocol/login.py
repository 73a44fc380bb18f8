"""How a client logs in to the brokers: from settings with librdkafka's names to Python's TLS and SASL."""

import base64
import http.client
import json
import re
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.abc import SaslMechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from feature_store.errors import FraudError

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
OIDC = "sasl.oauthbearer."
TLS = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.crl.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)
SASL = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.kerberos.service.name")
TOKENS = tuple(
    f"{OIDC}{name}" for name in ("method", "client.id", "client.secret", "scope", "token.endpoint.url")
)
KNOWN = frozenset(("security.protocol", *TLS, *SASL, *TOKENS))
TOKEN_S = 4.0
"""Limit for a request to the issuer of tokens; a broker that waits for it must not seem unreachable."""
TRUE, FALSE = ("true", "t", "1"), ("false", "f", "0")
"""How librdkafka writes truth values."""
DEFAULT_PORT, MOST_PORT = 9092, 65535
Address = tuple[str, int]


class LoginError(FraudError):
    """The job's own connections cannot be made with `FRAUD_KAFKA` and `FRAUD_BOOTSTRAP_SERVERS`.

    Correct what the message names; [operations](operations.md#tls-and-sasl) lists the settings.
    """


@dataclass(frozen=True)
class Login:
    """TLS and SASL of a client's connections."""

    tls: ssl.SSLContext | None = None
    """None: not encrypted."""
    mechanism: str = ""
    """SASL mechanism; empty: the client does not authenticate itself."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the mechanism needs, by kafka-python's names."""
    client_id: str = "card-fraud"
    """Name of the client for the brokers' quotas and logs."""

    @staticmethod
    def from_settings(kafka: Mapping[str, str]) -> "Login":
        """Return the login that client settings with librdkafka's names describe.

        Raises:
            LoginError: a setting of TLS or SASL is not known, or a file is not readable.
        """
        unknown = [name for name in kafka if _secures(name) and name not in KNOWN]
        if unknown:
            raise LoginError(f"the job's own client of Kafka does not know {', '.join(sorted(unknown))}")
        protocol = kafka.get("security.protocol", "plaintext").lower()
        if protocol not in PROTOCOLS:
            raise LoginError(f"security.protocol is {protocol}; known are {', '.join(PROTOCOLS)}")
        tls = _tls(kafka) if protocol.endswith("ssl") else None
        client_id = kafka.get("client.id", Login.client_id)
        if not protocol.startswith("sasl"):
            return Login(tls, client_id=client_id)
        mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "GSSAPI"))
        if mechanism not in MECHANISMS:
            raise LoginError(f"sasl.mechanism is {mechanism}; known are {', '.join(MECHANISMS)}")
        options: dict[str, Any] = {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": kafka.get("sasl.username", ""),
            "sasl_plain_password": kafka.get("sasl.password", ""),
            "sasl_kerberos_service_name": kafka.get("sasl.kerberos.service.name", "kafka"),
            "security_protocol": protocol.upper(),
        }
        if mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = _ClientCredentials(kafka)
        return Login(tls, mechanism, options, client_id)

    def conversation(self, host: str) -> SaslMechanism:
        """Begin a login at a broker."""
        mechanism: SaslMechanism = get_sasl_mechanism(self.mechanism)(host=host, **self.options)
        return mechanism


def _secures(name: str) -> bool:
    return name.startswith(("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.", "security."))


def addresses(servers: str) -> list[Address]:
    """Return hosts and ports of host[:port][,host[:port]], as librdkafka reads them.

    Raises:
        LoginError: there is none, or one that no socket takes.
    """
    found: list[Address] = []
    for server in filter(None, map(str.strip, servers.split(","))):
        match = re.fullmatch(r"(?:\w+://)?(?:\[(.+)\]|([^:]+))(?::(\d+))?", server)
        host, port = (match[1] or match[2], int(match[3] or DEFAULT_PORT)) if match else ("", 0)
        if not 0 < port <= MOST_PORT or not _is_name(host):
            raise LoginError(f"FRAUD_BOOTSTRAP_SERVERS: {server} is no host:port of a broker")
        found.append((host, port))
    if not found:
        raise LoginError("FRAUD_BOOTSTRAP_SERVERS names no broker")
    return found


def _is_name(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _is_true(kafka: Mapping[str, str], name: str) -> bool:
    text = kafka.get(name, "true").lower()
    if text not in (*TRUE, *FALSE):
        raise LoginError(f"{name} is {text}; known are {', '.join((*TRUE, *FALSE))}")
    return text in TRUE


def _tls(kafka: Mapping[str, str]) -> ssl.SSLContext:
    place = kafka.get("ssl.ca.location", "")
    place = "" if place == "probe" else place
    certificate, key = kafka.get("ssl.certificate.location"), kafka.get("ssl.key.location")
    identification = kafka.get("ssl.endpoint.identification.algorithm", "https").lower()
    if identification not in ("https", "none"):
        raise LoginError(f"ssl.endpoint.identification.algorithm is {identification}; known are https, none")
    revoked = kafka.get("ssl.crl.location")
    is_directory = Path(place).is_dir()
    try:
        # only without any of these the system's authorities count
        context = ssl.create_default_context(
            cafile=place if place and not is_directory else None,
            capath=place if place and is_directory else None,
            cadata=kafka.get("ssl.ca.pem") or None,
        )
        if revoked:
            context.load_verify_locations(revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if certificate:
            # without a password OpenSSL would ask for that of an encrypted key on the terminal
            context.load_cert_chain(certificate, key, kafka.get("ssl.key.password", ""))
    except OSError as fault:
        raise LoginError(f"a file of the settings of TLS cannot be used: {fault}") from fault
    if identification == "none":
        context.check_hostname = False
    if not _is_true(kafka, "enable.ssl.certificate.verification"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class _ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types here
    """Tokens that OpenID Connect issues for a client's id and secret, used for half of their time."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        super().__init__()
        if kafka.get(f"{OIDC}method", "default").lower() != "oidc":
            raise LoginError(f"OAUTHBEARER needs {OIDC}method=oidc")
        missing = [name for name in TOKENS if name not in kafka and not name.endswith(("method", "scope"))]
        if missing:
            raise LoginError(f"OAUTHBEARER needs {', '.join(missing)}")
        client = f"{kafka[f'{OIDC}client.id']}:{kafka[f'{OIDC}client.secret']}"
        form = {"grant_type": "client_credentials"}
        if scope := kafka.get(f"{OIDC}scope"):
            form["scope"] = scope
        self._request = urllib.request.Request(
            kafka[f"{OIDC}token.endpoint.url"],
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {base64.b64encode(client.encode()).decode()}"},
        )
        self._token, self._until = "", 0.0

    def token(self) -> str:
        """Ask the issuer, unless it has lately; raises ConnectionError if it gives no token."""
        if time.monotonic() > self._until:
            asked_at = time.monotonic()
            try:
                with urllib.request.urlopen(self._request, timeout=TOKEN_S) as answer:
                    issued = json.load(answer)
                self._token = str(issued["access_token"])
                self._until = asked_at + float(issued.get("expires_in", 0)) / 2
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as fault:
                raise ConnectionError(f"no token of OpenID Connect: {fault}") from fault
        return self._token
