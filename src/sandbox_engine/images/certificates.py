from pathlib import Path
from typing import NamedTuple

TRUST_STORE = "/etc/ssl/certs/ca-certificates.crt"
# Python's requests and Node have their own trust stores and need these variables.
TRUST_VARIABLES = ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
_PEM_HEADER = b"-----BEGIN CERTIFICATE-----"


class Certificate(NamedTuple):
    """A CA certificate that this machine trusts in addition to its distribution's."""

    name: str
    pem: bytes


def read_certificates(directory: Path) -> tuple[Certificate, ...]:
    """Read the certificates that `update-ca-certificates` would add from this directory."""
    found = (
        Certificate(str(path.relative_to(directory)), path.read_bytes())
        for path in sorted(directory.rglob("*.crt"))
        if path.is_file()
    )
    return tuple(certificate for certificate in found if _PEM_HEADER in certificate.pem)


def trust_environment(certificates: tuple[Certificate, ...]) -> dict[str, str]:
    """Return variables that point programs with their own trust store to the system's."""
    return dict.fromkeys(TRUST_VARIABLES, TRUST_STORE) if certificates else {}


def write_certificates(certificates: tuple[Certificate, ...], directory: Path) -> None:
    for certificate in certificates:
        path = directory / certificate.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(certificate.pem)
