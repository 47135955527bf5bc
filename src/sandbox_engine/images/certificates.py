from pathlib import Path
from typing import NamedTuple

TRUST_STORE = "/etc/ssl/certs/ca-certificates.crt"
_PEM_HEADER = b"-----BEGIN CERTIFICATE-----"


class Certificate(NamedTuple):
    """A CA certificate this machine trusts beyond its distribution's."""

    name: str
    pem: bytes


def read_certificates(directory: Path) -> tuple[Certificate, ...]:
    """Read what `update-ca-certificates` would add from this directory."""
    found = (
        Certificate(str(path.relative_to(directory)), path.read_bytes())
        for path in sorted(directory.rglob("*.crt"))
        if path.is_file()
    )
    return tuple(certificate for certificate in found if _PEM_HEADER in certificate.pem)


def write_certificates(certificates: tuple[Certificate, ...], directory: Path) -> None:
    for certificate in certificates:
        path = directory / certificate.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(certificate.pem)
