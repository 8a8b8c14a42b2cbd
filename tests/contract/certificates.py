"""A private authority, and certificates that it signs, as PEM files: made anew for a test, good for an hour on loopback."""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files; the server's and the client's certificates are signed by the authority."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path

    def server_context(self) -> ssl.SSLContext:
        """Return what a server needs that talks only to who has a certificate of the authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        context.load_cert_chain(self.server, self.server_key)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_certificates(folder: Path) -> Certificates:
    """Write an authority, a server's and a client's certificate with their keys."""
    made = Certificates(*(folder / name for name in ("authority.pem", "server.pem", "server.key", "client.pem", "client.key")))
    authority_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of a test")])
    signer = (
        _start(name, name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    made.authority.write_bytes(signer.public_bytes(serialization.Encoding.PEM))
    for certificate, key_file in ((made.server, made.server_key), (made.client, made.client_key)):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, certificate.stem)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = _start(subject, name, key).add_extension(names, critical=False).sign(authority_key, hashes.SHA256())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        key_file.write_bytes(key.private_bytes(*form))
    return made


def _start(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - HOUR)
        .not_valid_after(now + HOUR)
    )
