"""Files of COPY steps for the provider's API: one archive per step, named by a hash of its content."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from sandbox_server.providers.protocol.build_context import BuildContext, ContextFile


def hash_of(context: BuildContext, source: str, destination: str) -> str:
    return context.digest("COPY", source, destination, of=source)


def archive_of(context: BuildContext, source: str) -> bytes:
    """Pack the files of a COPY step; reproducible except for the time of packing."""
    files = context.below(source)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in _directories(files, source):
            archive.addfile(_entry(path, 0o755, tarfile.DIRTYPE))
        for path, file in sorted(files.items()):
            entry = _entry(path, file.mode, tarfile.REGTYPE)
            entry.size = len(file.content)
            archive.addfile(entry, io.BytesIO(file.content))
    return packed.getvalue()


def _directories(files: Mapping[str, ContextFile], source: str) -> list[str]:
    """List the source's directories, parents first."""
    depth = len(PurePosixPath(source).parts)
    parents = {parent for path in files for parent in PurePosixPath(path).parents}
    return sorted(str(path) for path in parents if len(path.parts) >= max(depth, 1))


def _entry(path: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.mode, entry.type = mode, kind
    return entry
