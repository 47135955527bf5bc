"""System calls that Python 3.11 does not wrap; they raise OSError."""

import ctypes
import os
import signal
import struct
from collections.abc import Collection
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_SYS_OPENAT2 = 437
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_AT_FDCWD = -100
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_IN_ROOT = 0x10

CLONE_FS = 0x00000200
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

FALLOC_FL_KEEP_SIZE = 1

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECBIT_NO_SETUID_FIXUP = 4

CAP_CHOWN = 0
CAP_DAC_OVERRIDE = 1
CAP_FOWNER = 3
CAP_FSETID = 4
CAP_SETPCAP = 8
CAP_SETFCAP = 31


def _checked(result: int, *paths: str) -> int:
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), *paths[:1])
    return result


def openat2(directory: int, path: str, flags: int, *, mode: int = 0, resolve: int) -> int:
    """Open `path` below a directory descriptor with the given resolve flags."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode, resolve)
    result = _libc.syscall(_SYS_OPENAT2, directory, os.fsencode(path), how, len(how))
    return _checked(result, path)


def mount(source: str, target: str, fstype: str, flags: int = 0, options: str = "") -> None:
    """Mount `source` on `target`."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(fstype),
        ctypes.c_ulong(flags),
        os.fsencode(options) if options else None,
    )
    _checked(result, target)


def open_mount(source: str) -> int:
    """Clone a mount of `source` without attaching it."""
    result = _libc.syscall(
        _SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(source), _OPEN_TREE_CLONE | os.O_CLOEXEC
    )
    return _checked(result, source)


def move_mount(opened: int, target: str) -> None:
    """Attach a mount from `open_mount` to `target`."""
    result = _libc.syscall(
        _SYS_MOVE_MOUNT, opened, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH
    )
    _checked(result, target)


def unmount(target: str, flags: int = 0) -> None:
    """Unmount `target`."""
    _checked(_libc.umount2(os.fsencode(target), flags), target)


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into the namespace of `descriptor`."""
    _checked(_libc.setns(descriptor, kind))


def unshare(kind: int) -> None:
    """Give the calling thread a new namespace of this kind."""
    _checked(_libc.unshare(kind))


def become_subreaper() -> None:
    """Become the parent of orphaned descendants."""
    _checked(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    """Allocate disk space for a range of a file."""
    result = _libc.fallocate(descriptor, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length))
    _checked(result)


def set_file_ids(uid: int, gid: int) -> None:
    """Set the user and group for file access of the calling thread."""
    _libc.setfsgid(gid)  # first: only root may change the group
    _libc.setfsuid(uid)


def inotify_init() -> int:
    """Create a non-blocking inotify instance."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(descriptor: int, path: str, mask: int) -> int:
    """Watch `path` for the events in `mask`."""
    return _checked(_libc.inotify_add_watch(descriptor, os.fsencode(path), mask), path)


def inotify_rm_watch(descriptor: int, watch: int) -> None:
    """Remove a watch."""
    _checked(_libc.inotify_rm_watch(descriptor, watch))


def syncfs(descriptor: int) -> None:
    """Flush the file system of `descriptor`."""
    _checked(_libc.syncfs(descriptor))


def filesystem_type(descriptor: int) -> int:
    """Return the magic number of the file system of `descriptor`."""
    status = ctypes.create_string_buffer(256)
    _checked(_libc.fstatfs(descriptor, status))
    kind: int = struct.unpack_from("l", status)[0]
    return kind & 0xFFFFFFFF


def keep_capabilities() -> None:
    """Keep capabilities when the user id changes."""
    _checked(_libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0))


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root of this mount namespace, and attach the old root at `old`."""
    _checked(_libc.pivot_root(os.fsencode(new), os.fsencode(old)), new)


def die_with_parent() -> None:
    """Have this process killed when its parent thread ends; reset by changing ids."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def renounce_new_privileges() -> None:
    """Set no_new_privs: setuid programs gain nothing."""
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def keep_only_capabilities(kept: Collection[int]) -> None:
    """Drop all other capabilities from the bounding set."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in sorted(range(last + 1), key=lambda number: number == CAP_SETPCAP):
        if capability not in kept:
            _checked(_libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
