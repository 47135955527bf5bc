import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict


class _Claim(TypedDict):
    owner: str
    layers: list[str]


class Claims:
    """Claims of engines on layers, for image stores shared by several engines.

    A claim outlives the engine's process, as paused sandboxes do; it ends with the engine's state
    directory.
    """

    def __init__(self, directory: Path, *, owner: Path) -> None:
        self._directory = directory
        self._owner = owner
        key = hashlib.sha256(os.fsencode(owner)).hexdigest()[:16]
        self._path = directory / f"{key}.json"
        directory.mkdir(exist_ok=True, mode=0o700)

    def own(self) -> set[str]:
        return set(_read(self._path)["layers"]) if self._path.exists() else set()

    def replace(self, layers: Iterable[str]) -> None:
        """Replace the claims of the owner."""
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump({"owner": str(self._owner), "layers": sorted(layers)}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._path)

    def all(self) -> set[str]:
        """Return all claimed layers."""
        claimed: set[str] = set()
        for path in self._directory.glob("*.json"):
            claim = _read(path)
            if Path(claim["owner"]).exists():
                claimed |= set(claim["layers"])
            else:
                path.unlink()
        return claimed


def _read(path: Path) -> _Claim:
    claim: _Claim = json.loads(path.read_bytes())
    return claim
