import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    @classmethod
    def parse(cls, url: str) -> "ServerAddress":
        parts = urlsplit(url)
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), tls)

    @property
    def authority(self) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}".encode()


class ServerAddressSource:
    """Finds the server's address: the setting, else what the server that started the engine wrote."""

    def __init__(self, setting: str | None, file: Path) -> None:
        self._fixed = None if setting is None else ServerAddress.parse(setting)
        self._file = file
        self._read: tuple[str, ServerAddress] | None = None

    def find(self) -> ServerAddress | None:
        """Return the current address; a server that was started again may have another port."""
        if self._fixed is not None:
            return self._fixed
        try:
            url = self._file.read_text().strip()
        except FileNotFoundError:
            return None
        if self._read is None or self._read[0] != url:
            self._read = url, ServerAddress.parse(url)
        return self._read[1]
