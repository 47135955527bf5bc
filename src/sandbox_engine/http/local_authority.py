"""A certificate authority of this machine, for names below `localhost` only.

Certificates are made per name, by the name that a client sends: OpenSSL and browsers refuse a wildcard as short as `*.localhost`.
"""

import os
import ssl
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_DOMAIN = "localhost"
_VALID_AUTHORITY = timedelta(days=3650)
_VALID = timedelta(days=90)
_RENEWED_AFTER = timedelta(days=30)
_EARLIER = timedelta(days=1)  # clocks differ
_MOST_NAMES = 512
_LONGEST_NAME = 253


@dataclass(frozen=True)
class _Issued:
    context: ssl.SSLContext
    at: datetime


class LocalAuthority:
    """Issues certificates for `localhost` and names below it; its key stays in the state directory."""

    def __init__(self, directory: Path) -> None:
        self.certificate = directory / "ca.pem"
        self._key = directory / "ca-key.pem"
        self._issued: OrderedDict[str, _Issued] = OrderedDict()

    def create_if_missing(self) -> None:
        """Create key and certificate at the first start."""
        if self.certificate.exists() and self._key.exists():
            return
        self.certificate.parent.mkdir(parents=True, exist_ok=True)
        key = _new_key()
        _write(self._key, _key_pem(key), mode=0o600)
        _write(self.certificate, _pem(_self_signed(key)), mode=0o644)

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a server that answers with a certificate of the requested name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])

        def select(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            is_local = name is not None and _is_local(name)
            connection.context = self._context_of(name.lower() if is_local and name else _DOMAIN)

        context.sni_callback = select
        return context

    def _context_of(self, name: str) -> ssl.SSLContext:
        now = datetime.now(UTC)
        issued = self._issued.get(name)
        if issued is None or now - issued.at > _RENEWED_AFTER:
            issued = _Issued(self._issue(name), now)
            self._issued[name] = issued
        self._issued.move_to_end(name)
        if len(self._issued) > _MOST_NAMES:
            self._issued.popitem(last=False)
        return issued.context

    def _issue(self, name: str) -> ssl.SSLContext:
        key = _new_key()
        content = _key_pem(key) + _pem(_signed(name, key, self.certificate, self._key))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        with tempfile.NamedTemporaryFile() as file:  # readable by this account only
            file.write(content)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def _is_local(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and name.lower().endswith(f".{_DOMAIN}")


# cryptography needs 10 MB, and most engines are never asked for HTTPS.
# ruff: noqa: PLC0415
def _new_key() -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _self_signed(key: "ec.EllipticCurvePrivateKey") -> "x509.Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sandbox-engine local CA")])
    builder = _builder(name, name, key.public_key(), _VALID_AUTHORITY)
    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # Whoever gets the key can pretend to be this machine, and nobody else.
        .add_extension(
            x509.NameConstraints(
                permitted_subtrees=[x509.DNSName(_DOMAIN)], excluded_subtrees=None
            ),
            critical=True,
        )
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _signed(
    name: str, key: "ec.EllipticCurvePrivateKey", authority: Path, authority_key: Path
) -> "x509.Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = _builder(x509.Name([]), issuer.subject, key.public_key(), _VALID)
    return (
        builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.OID_SERVER_AUTH]), critical=False)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(signer, hashes.SHA256())
    )


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "ec.EllipticCurvePublicKey",
    valid: timedelta,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + valid)
    )


def _usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: "ec.EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes, *, mode: int) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.replace(path)
