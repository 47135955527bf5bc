import hmac
import time
from datetime import timedelta

from sandbox_engine.system.errors import InvalidUploadLink


class UploadLinks:
    """Signed links for uploading one archive without the API key, valid for a while."""

    def __init__(self, key: str, *, lifetime: timedelta) -> None:
        self._key = key.encode()
        self._lifetime = lifetime

    def sign(self, digest: str) -> str:
        """Build the query of a link."""
        expires = int(time.time() + self._lifetime.total_seconds())
        return f"expires={expires}&signature={self._signature(digest, expires)}"

    def check(self, digest: str, *, expires: int, signature: str) -> None:
        expected = self._signature(digest, expires)
        if not hmac.compare_digest(signature.encode(), expected.encode()):
            raise InvalidUploadLink("Invalid upload link")
        if expires < time.time():
            raise InvalidUploadLink("Expired upload link")

    def _signature(self, digest: str, expires: int) -> str:
        return hmac.digest(self._key, f"upload {digest} {expires}".encode(), "sha256").hex()
