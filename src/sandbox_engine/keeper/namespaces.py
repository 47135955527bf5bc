"""Creates namespaces owned by a user namespace; requires a single-threaded process."""

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

_FIRST_OWNER = 1 << 31  # unused by any account
_OWNERS = 1 << 30


def make_namespaces(user: Path, net: Path, *, first_id: int, ids: int) -> None:
    """Create a user namespace with a range of host ids and a network namespace owned by it.

    They are bound to the two paths, which are empty files.
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
    """Keep the namespaces open until the parent has bound them."""
    try:
        _become_unique_owner()
        unshare(CLONE_NEWUSER | CLONE_NEWNET)
        os.write(made, b"1")
        os.read(proceed, 1)  # the other end is closed when the parent is done or dead
    finally:
        os._exit(0)


def _become_unique_owner() -> None:
    # The kernel charges inotify instances, queued signals, message queues and locked memory to the
    # owner of the user namespace as well. If root owned them all, one sandbox could exhaust them
    # for all others and the host. In a container this may not be possible.
    with suppress(OSError):
        keep_capabilities()
        os.seteuid(_FIRST_OWNER + int.from_bytes(os.urandom(4)) % _OWNERS)
