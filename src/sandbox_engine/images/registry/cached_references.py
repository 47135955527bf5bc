import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox_engine.images.references import Reference


@dataclass(frozen=True)
class CachedReference:
    """The last answer of a registry for a reference, and the resulting image."""

    answer: str
    layer: str
    env: Mapping[str, str]
    is_private: bool


class Memory:
    """Cache of resolved references for times when registries are unreachable; one file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)

    def find(self, reference: Reference) -> CachedReference | None:
        """Find the cached answer for a reference."""
        path = self._path(reference)
        return CachedReference(**json.loads(path.read_bytes())) if path.exists() else None

    def keep(self, reference: Reference, remembered: CachedReference) -> None:
        path = self._path(reference)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(remembered)))
        fresh.rename(path)

    def _path(self, reference: Reference) -> Path:
        key = hashlib.sha256(str(reference).encode()).hexdigest()[:32]
        return self._directory / f"{key}.json"
