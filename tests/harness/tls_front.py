"""A TLS listener before a plaintext one, with a certificate of an authority of its own."""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


class Certificate(NamedTuple):
    """Files in PEM of a self-signed certificate for 127.0.0.1, and of its key."""

    certificate: Path
    key: Path


def certificate(directory: Path, name: str, password: str | None = None) -> Certificate:
    """Make a certificate that is valid for a day; the key is encrypted if there is a password."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    encryption = (
        serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    )
    files = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    files.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    return files


@contextmanager
def tls_front(port: int, own: Certificate, clients: Certificate | None = None) -> Iterator[int]:
    """Forward connections to a local port; yields the port of the TLS listener.

    Args:
        clients: the certificate that clients must show, if any.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=_serve, args=(listener, context, port), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return  # the listener is closed
        try:
            client = context.wrap_socket(plain, server_side=True)
            server = socket.create_connection((HOST, port))
        except OSError:  # a client that was refused, or refuses this server
            plain.close()
            continue
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_forward, args=(source, target), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    try:
        while content := source.recv(65536):
            target.sendall(content)
    except OSError:
        pass
    finally:
        source.close()
        target.close()
