"""An authority, and the certificates that it signs for brokers, sidecar and the clients of Kafka."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Authority:
    """A certificate authority that lives for a day."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("tests")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(self._name, self._key.public_key()).add_extension(constraints, critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    def write(self, directory: Path, name: str, hosts: Collection[str] = ()) -> Path:
        """Write ca.crt, tls.crt and tls.key, as secrets have them; return their directory.

        Args:
            name: the common name.
            hosts: DNS names of a server.
        """
        directory.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_named(name), key.public_key())
        if hosts:
            names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        pem = serialization.Encoding.PEM
        (directory / "ca.crt").write_bytes(self._certificate.public_bytes(pem))
        (directory / "tls.crt").write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(pem))
        (directory / "tls.key").write_bytes(private(key))
        return directory

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


def private(
    key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    """Return a private key as PEM."""
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
