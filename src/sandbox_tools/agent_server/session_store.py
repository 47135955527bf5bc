import json
import os
from dataclasses import asdict
from pathlib import Path

from sandbox_tools.coding_agents.agent import SessionRecord

_MAX_KEPT = 500


class SessionRecords:
    """One file per session; only the newest are kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, session_id: str) -> SessionRecord | None:
        try:
            return SessionRecord(**json.loads(self._file(session_id).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, record: SessionRecord) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._file(record.id)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(record)))
        new.replace(file)
        self._evict_oldest()

    def _evict_oldest(self) -> None:
        files = [entry for entry in os.scandir(self._directory) if entry.name.endswith(".json")]
        files.sort(key=lambda entry: entry.stat().st_mtime)
        for entry in files[:-_MAX_KEPT]:
            Path(entry.path).unlink(missing_ok=True)

    def _file(self, session_id: str) -> Path:
        return self._directory / f"{session_id}.json"
