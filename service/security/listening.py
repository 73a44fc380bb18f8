"""Check of the listening address: one that other machines can reach needs tokens and, by default, TLS."""

import socket
import ssl

from feature_store.errors import FraudError
from service.security.authentication import is_loopback
from service.settings import ServiceSettings


class ListenError(FraudError):
    """The sidecar would listen beyond this machine without tokens or TLS, or its TLS files are invalid.

    Set what the message names, or listen on 127.0.0.1.
    """


def check(host: str, settings: ServiceSettings) -> None:
    """Check the TLS files and, if other machines can reach the address, its protection.

    An address that other machines can reach needs tokens. It also needs TLS, unless `insecure_http` is set.

    Raises:
        ListenError: tokens or TLS are missing, or the TLS files are incomplete or invalid.
    """
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ListenError("TLS needs both --tls-cert and --tls-key; give the other, or neither")
    if settings.tls_cert is not None and settings.tls_key is not None:
        try:
            # an empty password: without one, ssl would prompt for it on the terminal
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings.tls_cert, settings.tls_key, password=lambda: b"")
        except (OSError, ValueError) as fault:  # ssl.SSLError is an OSError
            text = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
            raise ListenError(
                f"no TLS with {settings.tls_cert} and {settings.tls_key}: {text}; give a certificate and its "
                "key without a password, both PEM"
            ) from fault
    if _is_local(host):
        return
    if settings.tokens_file is None:
        raise ListenError(
            f"{host} can be reached from outside, and there is no --tokens-file; make one with "
            "`fraud tokens add`, or listen on 127.0.0.1"
        )
    if settings.tls_cert is None and not settings.insecure_http:
        raise ListenError(
            f"{host} can be reached from outside, and tokens would cross the network unencrypted; give "
            "--tls-cert and --tls-key, or --insecure-http where a proxy does TLS"
        )


def _is_local(host: str) -> bool:
    try:
        addresses = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False  # listening fails later, with an error of its own
    return bool(addresses) and all(is_loopback(str(address[4][0])) for address in addresses)
