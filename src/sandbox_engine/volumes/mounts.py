"""Mounts volumes in sandboxes."""

import os
import posixpath
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import Owner
from sandbox_engine.rootfs.root import Root
from sandbox_engine.system.errors import InvalidRequest
from sandbox_engine.system.syscalls import MS_BIND, mount

_RESERVED = ("/proc", "/sys", "/dev", "/etc", "/run/e2b")
_SANDBOX_ROOT = Owner(0, 0)


def check_mount_points(paths: Sequence[str]) -> None:
    """Reject paths that cannot be mount points; reports all problems."""
    wrong = [(path, problem) for path in paths if (problem := _problem(path))]
    if not wrong:
        wrong = [(path, "it is inside another mount") for path in _nested(paths)]
    if wrong:
        reasons = "; ".join(f"{path!r}: {problem}" for path, problem in wrong)
        raise InvalidRequest(f"Volumes cannot be mounted there: {reasons}")


def mount_volumes(root: Path, volumes: Sequence[tuple[Path, str]]) -> None:
    """Mount directories in an unused root, creating missing mount points.

    Links in the root are resolved within the root.
    """
    with ExitStack() as stack:
        tree = Root.at(str(root))
        stack.callback(tree.close)
        places = [stack.enter_context(closing(_make_place(tree, path))) for _, path in volumes]
        check_mount_points([tree.path_of(place) for place in places])
        for (source, _), place in zip(volumes, places, strict=True):
            mount(str(source), f"/proc/self/fd/{place}", "", MS_BIND)


def _make_place(tree: Root, path: str) -> int:
    try:
        tree.make_directories(path, _SANDBOX_ROOT)
        return tree.locate(path, os.O_DIRECTORY)
    except OSError as error:
        raise InvalidRequest(f"A volume cannot be mounted at {path!r}: {error.strerror}") from error


def _problem(path: str) -> str:
    if "\0" in path or not path.startswith("/"):
        return "it is not an absolute path"
    if posixpath.normpath(path) != path or path.startswith("//"):
        return "it is not normalized"
    if path == "/":
        return "it is the root"
    if any(_is_within(path, reserved) for reserved in _RESERVED):
        return "it is reserved for the system"
    return ""


def _nested(paths: Sequence[str]) -> Iterable[str]:
    return (
        path
        for number, path in enumerate(paths)
        if any(_is_within(path, other) for at, other in enumerate(paths) if at != number)
    )


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
