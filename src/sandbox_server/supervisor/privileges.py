"""How a process of root's becomes one of an account that may do nothing else on this machine."""

import ctypes
import os
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from sandbox_server.db.account import Account
from sandbox_server.db.migrating import migrations_directory
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.interruption import (
    HEEDED,
    Interrupted,
    restore_defaults,
    signals_held,
)

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


_libc = ctypes.CDLL(None, use_errno=True)


def try_programs(account: Account) -> int:
    """Check that the account can run our programs; gives the exit code of the process that tried."""
    with signals_held():
        child = fork_as(account, lambda: 0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def fork_as(
    account: Account, work: Callable[[], int], *, close: Callable[[], object] = lambda: None
) -> int:
    """Have a child of this process do the work as the account; gives its number.

    Nothing is executed anew, since the account may not be able to read our programs where they are.
    The caller holds signals until it has set up how it heeds them itself.
    """
    child = os.fork()
    if child != 0:
        return child
    status = 1
    try:
        restore_defaults()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)
        close()
        os.setpgid(0, 0)
        show_programs(account, programs_in_use())
        become(account)
        status = work()
    except CannotServe as error:
        sys.stderr.write(f"{error}\n")
    except KeyboardInterrupt as error:
        status = 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)
    except BaseException:  # noqa: BLE001 - nothing may go on in the parent's blocks
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def become(account: Account) -> None:
    """Give up root for good; this process ends when its parent does, and gains nothing by any program."""
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
    """Let the account see our own programs where it may not go, as below /root, and nothing else there.

    In a view of the files that is this process's alone: what is closed to the account is covered
    with an empty directory, in which the programs appear where they were.
    """
    hidden = {one: closed for one in programs if (closed := account.closed_parent(one / "x"))}
    if not hidden:
        return
    try:
        _call("unshare", _CLONE_NEWNS)
        _mount(None, Path("/"), flags=_MS_REC | _MS_PRIVATE)
        _uncover(hidden)
    except PermissionError:
        raise _unreadable(account, next(iter(hidden.values()))) from None
    for program in hidden:
        if account.closed_parent(program / "x"):
            raise _unreadable(account, program)


def programs_in_use() -> list[Path]:
    """List the directories that this Python reads code from, none of them in another."""
    used = {Path(one).resolve() for one in (*sys.path, *sysconfig.get_paths().values()) if one}
    used |= {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), migrations_directory()}
    existing = {one for one in used if one.is_dir()}
    return sorted(one for one in existing if existing.isdisjoint(one.parents))


def _uncover(hidden: dict[Path, Path]) -> None:
    opened = {one: os.open(one, os.O_PATH | os.O_CLOEXEC) for one in hidden}
    for closed in {one for one in hidden.values() if set(hidden.values()).isdisjoint(one.parents)}:
        _mount("tmpfs", closed, kind="tmpfs", options="mode=0755,size=1m")
    for program, descriptor in opened.items():
        program.mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", program, flags=_MS_BIND | _MS_REC)
        read_only = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
        _mount(None, program, flags=read_only)
        os.close(descriptor)


def _unreadable(account: Account, path: Path) -> CannotServe:
    return CannotServe(
        f"The account {account.name}, which the server runs as, may not read {path}: install the "
        f"server elsewhere, or let it in: chmod -R go+rX {path}"
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
