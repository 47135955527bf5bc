"""Namespaces that belong to a user namespace: only a process with one thread can make them."""

import os
from contextlib import suppress
from pathlib import Path

from sandbox_engine.system.syscalls import (
    CLONE_NEWNET,
    CLONE_NEWUSER,
    MS_BIND,
    keep_capabilities,
    mount,
    unshare,
)

_FIRST_OWNER = 1 << 31  # no account has such an id
_OWNERS = 1 << 30


def make_namespaces(user: Path, net: Path, *, first_id: int, ids: int) -> None:
    """Make a user namespace with its range of host ids and a network namespace that it owns.

    They live at the two paths, which are empty files.
    """
    ready, made = os.pipe()
    proceed, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        _be_inside(made, proceed)
    os.close(made)
    os.close(proceed)
    try:
        if os.read(ready, 1) != b"1":
            raise OSError("the kernel refused a user namespace")
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{kind}").write_text(f"0 {first_id} {ids}\n")
        for kind, path in (("user", user), ("net", net)):
            mount(f"/proc/{child}/ns/{kind}", str(path), "", MS_BIND)
    finally:
        os.close(ready)
        os.close(go)
        os.waitpid(child, 0)


def _be_inside(made: int, proceed: int) -> None:
    """Hold the namespaces open until the parent has bound them."""
    try:
        _become_an_owner_of_its_own()
        unshare(CLONE_NEWUSER | CLONE_NEWNET)
        os.write(made, b"1")
        os.read(proceed, 1)  # its other end is closed when the parent is done, or dead
    finally:
        os._exit(0)


def _become_an_owner_of_its_own() -> None:
    # The kernel counts inotify instances, queued signals, message queues and locked memory for the
    # owner of the user namespace as well. If that were root, one sandbox could take them from every
    # other and from the host. Where we are in a container ourselves, this may not be possible.
    with suppress(OSError):
        keep_capabilities()
        os.seteuid(_FIRST_OWNER + int.from_bytes(os.urandom(4)) % _OWNERS)
