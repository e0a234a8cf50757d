"""Issue throw-away certificates for servers on this host."""

from __future__ import annotations

import atexit
import datetime as dt
import ipaddress
import shutil
import ssl
import tempfile
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority with one server certificate, for `localhost` and 127.0.0.1.

    Attributes:
        bundle: The file with the authority's certificate, for `ssl_ca_certs`.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fk-tls-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self.bundle = self._folder / "ca.pem"
        self._chain = self._folder / "server.pem"
        ca_key, key = (
            ec.generate_private_key(ec.SECP256R1()),
            ec.generate_private_key(ec.SECP256R1()),
        )
        ca_name, name = _name("fencekit test authority"), _name("localhost")
        ca = (
            _builder(ca_name, ca_name, ca_key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
            )
            .sign(ca_key, hashes.SHA256())
        )
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            _builder(name, ca_name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
            .sign(ca_key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        self.bundle.write_bytes(ca.public_bytes(pem))
        self._chain.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            + certificate.public_bytes(pem)
        )

    def server_context(self) -> ssl.SSLContext:
        """Return the context in which a server shows its certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._chain)
        return context


@lru_cache(maxsize=1)
def authority() -> Authority:
    """Return this process's certificate authority."""
    return Authority()


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - dt.timedelta(days=1),
        not_valid_after=now + dt.timedelta(days=1),
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
