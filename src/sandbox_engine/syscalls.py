"""System calls that Python 3.11 does not wrap. Each raises OSError as the standard library would."""

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_SYS_OPENAT2 = 437
_AT_FDCWD = -100

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_IN_ROOT = 0x10

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOATIME = 1024
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

FALLOC_FL_KEEP_SIZE = 1

PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
SECBIT_NO_SETUID_FIXUP = 4


def _checked(result: int, *paths: str) -> int:
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), *paths[:1])
    return result


def openat2(directory: int, path: str, flags: int, *, mode: int = 0, resolve: int) -> int:
    """Open `path` below the directory descriptor, held to the given resolve rules."""
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


def unmount(target: str, flags: int = 0) -> None:
    """Unmount what is mounted on `target`."""
    _checked(_libc.umount2(os.fsencode(target), flags), target)


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into the namespace behind `descriptor`."""
    _checked(_libc.setns(descriptor, kind))


def unshare(kind: int) -> None:
    """Give the calling thread a new namespace of this kind."""
    _checked(_libc.unshare(kind))


def become_subreaper() -> None:
    """Adopt every orphaned descendant of this process."""
    _checked(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    """Reserve room for a range of a file."""
    result = _libc.fallocate(descriptor, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length))
    _checked(result)


def set_file_ids(uid: int, gid: int) -> None:
    """Have the calling thread alone make and open files as this user and group."""
    _libc.setfsgid(gid)  # first: a thread that is no longer root could not
    _libc.setfsuid(uid)


def inotify_init() -> int:
    """Open an inotify instance that does not block."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(descriptor: int, path: str, mask: int) -> int:
    """Watch `path` for the events in `mask`."""
    return _checked(_libc.inotify_add_watch(descriptor, os.fsencode(path), mask), path)


def inotify_rm_watch(descriptor: int, watch: int) -> None:
    """Stop watching."""
    _checked(_libc.inotify_rm_watch(descriptor, watch))


def syncfs(descriptor: int) -> None:
    """Write out the file system that `descriptor` is on."""
    _checked(_libc.syncfs(descriptor))


def filesystem_type(descriptor: int) -> int:
    """Tell which file system `descriptor` is on, by the kernel's magic number."""
    status = ctypes.create_string_buffer(256)
    _checked(_libc.fstatfs(descriptor, status))
    kind: int = struct.unpack_from("l", status)[0]
    return kind & 0xFFFFFFFF


def keep_capabilities() -> None:
    """Let this process keep its capabilities when its user id changes."""
    _checked(_libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
