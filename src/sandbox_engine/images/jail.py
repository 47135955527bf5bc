"""Runs a program in a jail: `python -m … SPECIFICATION PROGRAM …`.

The program sees the machine's programs, read-only, and the given directories. It has its own
namespaces and ids, no capabilities outside them, no descriptors but the standard three, and dies
with its parent.
"""

import json
import os
import resource
import select
import stat
import sys
from pathlib import Path
from typing import NoReturn, TypedDict

from sandbox_engine.system.syscalls import (
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_FOWNER,
    CAP_FSETID,
    CAP_SETFCAP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MNT_DETACH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    die_with_parent,
    keep_only_capabilities,
    mount,
    pivot_root,
    renounce_new_privileges,
    unmount,
    unshare,
)

# Needed to set owners and modes of unpacked files, within its own ids.
_UNPACKING = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SETFCAP}

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_CONFIGURATION = ("ld.so.cache", "alternatives")
_NETWORK_CONFIGURATION = (
    *("resolv.conf", "hosts", "nsswitch.conf", "ssl", "pki", "ca-certificates"),
    *("containers", "docker/certs.d"),
)
_DEVICES = ("null", "zero", "urandom")
_CANNOT_START = 125


class Specification(TypedDict):
    """Limits of the jail.

    With `ids` the program is root of that many ids from `first_id` on; otherwise it runs as account
    `first_id`.
    """

    root: str
    work: str
    inputs: str | None
    network: bool
    first_id: int
    ids: int
    largest_file: int


def main() -> NoReturn:
    """Run the program, and exit with its status."""
    specification: Specification = json.loads(sys.argv[1])
    die_with_parent()
    alive, _end_of_parent = os.pipe()
    is_inside, inside = os.pipe()
    is_mapped, mapped = os.pipe()
    namespaces = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS
    unshare(namespaces | (0 if specification["network"] else CLONE_NEWNET))
    child = os.fork()
    if child == 0:
        for descriptor in (_end_of_parent, is_inside, mapped):
            os.close(descriptor)
        _become(specification, sys.argv[2:], alive=alive, inside=inside, is_mapped=is_mapped)
    os.close(inside)
    if os.read(is_inside, 1) and specification["ids"]:
        for kind in ("uid_map", "gid_map"):
            ids = f"0 {specification['first_id']} {specification['ids']}\n"
            Path(f"/proc/{child}/{kind}").write_text(ids)
    os.write(mapped, b"1")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


def _become(
    specification: Specification, argv: list[str], *, alive: int, inside: int, is_mapped: int
) -> NoReturn:
    try:
        os.setsid()
        Path("/proc/self/oom_score_adj").write_text("1000")
        _enter_root(specification)
        if specification["ids"]:
            unshare(CLONE_NEWUSER)
        os.write(inside, b"1")
        os.read(is_mapped, 1)
        _take_ids(specification)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (specification["largest_file"],) * 2)
        renounce_new_privileges()
        die_with_parent()  # last: changing ids resets it
        if select.select([alive], [], [], 0)[0]:
            raise OSError("the engine is gone")  # noqa: TRY301
        os.environ.pop("PYTHONPATH", None)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        os.write(2, f"{argv[0]} could not be started: {error}\n".encode())
    finally:
        os._exit(_CANNOT_START)


def _take_ids(specification: Specification) -> None:
    own = 0 if specification["ids"] else specification["first_id"]
    keep_only_capabilities(_UNPACKING if specification["ids"] else ())
    os.setgroups([])
    os.setresgid(own, own, own)
    os.setresuid(own, own, own)


def _enter_root(specification: Specification) -> None:
    unshare(CLONE_NEWNS)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    root = Path(specification["root"])
    mount("tmpfs", str(root), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for name in _SYSTEM:
        _show(Path("/", name), root / name)
    for name in _CONFIGURATION + (_NETWORK_CONFIGURATION if specification["network"] else ()):
        _show(Path("/etc", name), root / "etc" / name)
    for name in _DEVICES:
        _bind(Path("/dev", name), root / "dev" / name, MS_NOSUID | MS_NOEXEC)
    (root / "proc").mkdir()
    mount("proc", str(root / "proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _bind(Path(specification["work"]), root / "work", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if specification["inputs"] is not None:
        _bind(Path(specification["inputs"]), root / "inputs", MS_RDONLY | MS_NOSUID | MS_NODEV)
    mount("", str(root), "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(root)
    pivot_root(".", ".")
    unmount(".", MNT_DETACH)
    os.chdir("/work")


def _show(source: Path, target: Path) -> None:
    """Bind-mount `source` if it exists."""
    if source.is_symlink() and source.parent == Path("/"):  # /lib and others
        target.symlink_to(source.readlink())
    elif source.exists():
        _bind(source, target, MS_RDONLY | MS_NOSUID | MS_NODEV)


def _bind(source: Path, target: Path, flags: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISDIR(source.stat().st_mode):
        target.mkdir()
    else:
        target.touch()
    mount(str(source), str(target), "", MS_BIND)
    mount("", str(target), "", MS_REMOUNT | MS_BIND | flags)


if __name__ == "__main__":
    main()
