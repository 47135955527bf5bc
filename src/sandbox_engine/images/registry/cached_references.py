import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox_engine.images.references import Reference


@dataclass(frozen=True)
class CachedReference:
    """What a registry said of a reference when it was last asked, and what came of it."""

    answer: str
    layer: str
    env: Mapping[str, str]
    is_private: bool


class Memory:
    """What was fetched of registries, for when they do not answer; a file for each reference."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)

    def find(self, reference: Reference) -> CachedReference | None:
        """Recall what the reference stood for."""
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
