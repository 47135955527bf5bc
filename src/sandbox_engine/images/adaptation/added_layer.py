import os
import posixpath
import stat
from pathlib import Path

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import UID_BASE, Owner
from sandbox_engine.rootfs.root import Root

_ROOT = Owner(0, 0)
# The engine's own layer has this directory too, on top: it would hide a link.
_NEVER_A_LINK = "/etc"


class AddedLayer:
    """A layer on top of an image: the image's directories with additional files."""

    def __init__(self, image: Root, tree: Path) -> None:
        self._image = image
        self._tree = tree
        self._copy_status(image.stat("/"), tree)

    def make_directory(self, path: str, *, mode: int = 0o755, owner: Owner = _ROOT) -> None:
        """Add a directory; an existing one of the image is kept."""
        if self._find(path) is None:
            self._place(path, mode=mode, owner=owner)

    def write(self, path: str, content: bytes, *, mode: int = 0o644, owner: Owner = _ROOT) -> None:
        """Add a file, following the image's links or replacing them."""
        target = self._parent(path) / posixpath.basename(path)
        target.write_bytes(content)
        target.chmod(mode)
        _give(target, owner)

    def _parent(self, path: str) -> Path:
        return self._place(posixpath.dirname(path), mode=0o755, owner=_ROOT)

    def _place(self, path: str, *, mode: int, owner: Owner) -> Path:
        """Return the directory of our tree for a path, created with its parents."""
        if path == "/":
            return self._tree
        found = self._find(path)
        if found is None:
            parent = self._place(posixpath.dirname(path), mode=0o755, owner=_ROOT)
            return self._new(parent / posixpath.basename(path), mode=mode, owner=owner)
        place, status = self._tree, None
        for name in found.split("/")[1:]:
            place /= name
            status = self._image.stat("/" + str(place.relative_to(self._tree)))
            if not place.exists():
                place.mkdir()
                self._copy_status(status, place)
        return place

    def _find(self, path: str) -> str | None:
        """Resolve a path to the real directory in the image."""
        try:
            with closing(self._image.locate(path, os.O_DIRECTORY)) as descriptor:
                found = self._image.path_of(descriptor)
        except OSError:
            return None
        is_elsewhere = path.split("/")[1] == "etc" and found.split("/")[1:2] != ["etc"]
        return None if is_elsewhere else found

    def _new(self, place: Path, *, mode: int, owner: Owner) -> Path:
        if not place.exists():
            place.mkdir()
            place.chmod(mode)
            _give(place, owner)
        return place

    @staticmethod
    def _copy_status(status: os.stat_result, place: Path) -> None:
        place.chmod(stat.S_IMODE(status.st_mode))
        os.chown(place, status.st_uid, status.st_gid)


def _give(path: Path, owner: Owner) -> None:
    os.lchown(path, UID_BASE + owner.uid, UID_BASE + owner.gid)
