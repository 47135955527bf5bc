"""Drops the privileges of root to an unprivileged account."""

import ctypes
import errno
import os
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from sandbox_server.db.account import Account
from sandbox_server.db.schema_migrations import migrations_directory
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.signals import (
    HANDLED_SIGNALS,
    Interrupted,
    restore_defaults,
    signals_blocked,
)

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_ENGINE_MOUNTS = Path("/run/sandbox-engine")


_libc = ctypes.CDLL(None, use_errno=True)


def try_programs(account: Account) -> int:
    """Check that the account can run our programs; return the exit code of a trial process."""
    with signals_blocked():
        child = fork_as(account, lambda: 0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def fork_as(
    account: Account, work: Callable[[], int], *, close: Callable[[], object] = lambda: None
) -> int:
    """Run the work in a forked child as the account; return its pid.

    Fork without exec: the account may not be able to read our programs at their path. The caller blocks
    signals until it has installed its own handlers.
    """
    child = os.fork()
    if child != 0:
        return child
    status = 1
    try:
        restore_defaults()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
        close()
        os.setpgid(0, 0)
        show_programs(account, programs_in_use())
        become(account)
        status = work()
    except CannotServe as error:
        sys.stderr.write(f"{error}\n")
    except KeyboardInterrupt as error:
        status = 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)
    except BaseException:  # noqa: BLE001 - the child must not continue in the parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def become(account: Account) -> None:
    """Drop root permanently; set parent death signal and no_new_privs."""
    parent = os.getppid()
    os.umask(0o077)
    os.setgroups([])
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    os.chdir("/")
    os.environ.update(HOME="/nonexistent", USER=account.name, LOGNAME=account.name)


def show_programs(account: Account, programs: Iterable[Path]) -> None:
    """Make our programs visible to the account in directories that it may not enter, such as /root.

    In a private mount namespace, each inaccessible directory is covered by an empty one, in which our
    programs are bind-mounted at their path.
    """
    hidden = {
        program: closed for program in programs if (closed := account.closed_parent(program / "x"))
    }
    if not hidden:
        return
    try:
        _call("unshare", _CLONE_NEWNS)
        _mount(None, Path("/"), flags=_MS_REC | _MS_PRIVATE)
        _release_disks()
        _uncover(hidden)
    except PermissionError:
        raise _unreadable(account, next(iter(hidden.values()))) from None
    for program in hidden:
        if account.closed_parent(program / "x"):
            raise _unreadable(account, program)


def programs_in_use() -> list[Path]:
    """List the directories that this Python imports from, without nested ones."""
    used = {Path(path).resolve() for path in (*sys.path, *sysconfig.get_paths().values()) if path}
    used |= {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), migrations_directory()}
    existing = {path for path in used if path.is_dir()}
    return sorted(path for path in existing if existing.isdisjoint(path.parents))


def _release_disks() -> None:
    """Unmount sandboxes' disks in this mount namespace.

    It began with a copy of every mount. The copies would keep each disk in use for as long as this
    process lives, and the sandbox could neither resume nor be forked.
    """
    mounts = [line.split(" ")[:2] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for device, target in reversed(mounts):
        if _is_of_engine(device, Path(target)):
            _unmount(target)


def _unmount(target: str) -> None:
    """Unmount what may be gone: an engine that deletes a sandbox removes its mounts everywhere."""
    try:
        _call("umount2", target.encode(), _MNT_DETACH)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINVAL):
            raise


def _is_of_engine(device: str, target: Path) -> bool:
    if target.is_relative_to(_ENGINE_MOUNTS):
        return True
    if not device.startswith("/dev/loop"):
        return False
    # The engine mounts an image beside it.
    note = Path("/sys/block", Path(device).name, "loop/backing_file")
    with suppress(OSError):  # the loop device may be detached meanwhile
        return Path(note.read_text().rstrip("\n")).parent == target.parent
    return False


def _uncover(hidden: dict[Path, Path]) -> None:
    opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in hidden}
    for closed in {
        path for path in hidden.values() if set(hidden.values()).isdisjoint(path.parents)
    }:
        _mount("tmpfs", closed, kind="tmpfs", options="mode=0755,size=1m")
    for program, descriptor in opened.items():
        program.mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", program, flags=_MS_BIND | _MS_REC)
        read_only = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
        _mount(None, program, flags=read_only)
        os.close(descriptor)


def _unreadable(account: Account, path: Path) -> CannotServe:
    return CannotServe(
        f"The server runs as account {account.name}, which cannot read {path}. Install the "
        f"server elsewhere, or grant access: chmod -R go+rX {path}"
    )


def _mount(
    source: str | None, target: Path, *, kind: str | None = None, flags: int = 0, options: str = ""
) -> None:
    _call(
        "mount",
        None if source is None else source.encode(),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
