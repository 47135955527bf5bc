"""The tool server of sandboxes with its dependencies from this environment, to avoid slow downloads."""

import io
import tarfile
from importlib.metadata import distribution
from pathlib import PurePath

from tests.engine.engine_process import REPOSITORY

_REQUIREMENTS = REPOSITORY / "docker/sandbox/requirements.txt"


def pack_tool_server() -> bytes:
    """Pack a directory for PYTHONPATH."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(REPOSITORY / "src/sandbox_tools", "sandbox_tools", filter=_without_compiled)
        for line in _REQUIREMENTS.read_text().splitlines():
            if not line.startswith("#"):
                _add_distribution(archive, line.partition("==")[0])
    return packed.getvalue()


def _add_distribution(archive: tarfile.TarFile, name: str) -> None:
    found = distribution(name)
    for path in found.files or ():
        if ".." not in path.parts and not _is_compiled(path):
            archive.add(str(found.locate_file(path)), str(path))


def _without_compiled(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _is_compiled(PurePath(entry.name)) else entry


def _is_compiled(path: PurePath) -> bool:
    return "__pycache__" in path.parts
