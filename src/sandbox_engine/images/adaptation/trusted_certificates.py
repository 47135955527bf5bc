from pathlib import Path

from sandbox_engine.images.adaptation.added_layer import AddedLayer
from sandbox_engine.images.certificates import TRUST_STORE, Certificate
from sandbox_engine.rootfs.root import Root

# Bundles of trusted certificates: Debian and Alpine, Alpine, Fedora, SUSE.
_STORES = (
    TRUST_STORE,
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
)
# Sources from which `update-ca-certificates` and `update-ca-trust` rebuild the bundles.
_ANCHORS = ("/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors")
_LARGEST_STORE = 16 << 20


def add_certificates(root: Root, added: AddedLayer, certificates: tuple[Certificate, ...]) -> None:
    """Make the image trust the additional CA certificates of this machine."""
    if not certificates:
        return
    own = b"".join(b"\n" + certificate.pem.strip() + b"\n" for certificate in certificates)
    there = {path: store for path in _STORES if (store := _read(root, path))}
    # An image without a trust store gets the machine's, or it could not install one.
    for path, store in (there or {TRUST_STORE: _of_host()}).items():
        added.write(path, store + own)
    for directory in _ANCHORS:
        if directory.startswith("/usr/local") or _is_directory(root, directory):
            for certificate in certificates:
                added.write(f"{directory}/{certificate.name}", certificate.pem)


def _read(root: Root, path: str) -> bytes | None:
    try:
        return root.read(path, limit=_LARGEST_STORE)
    except OSError:
        return None


def _is_directory(root: Root, path: str) -> bool:
    try:
        return bool(root.stat(path + "/."))
    except OSError:
        return False


def _of_host() -> bytes:
    store = Path(TRUST_STORE)
    return store.read_bytes() if store.is_file() else b""
