import asyncio
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.system.syscalls import (
    CLONE_FS,
    CLONE_NEWNS,
    move_mount,
    open_mount,
    setns,
    unshare,
)

_SHOWN_AT = "/proc/sys/kernel/random/boot_id"


async def mount_boot_id(init: int, *, file: Path) -> None:
    """Mount a boot id of this run's own over the host's.

    The OCI runtime refuses mounts at this path.
    """
    file.unlink(missing_ok=True)  # the previous file may still be mounted
    file.write_text(f"{uuid.uuid4()}\n")
    # A separate thread, since it cannot leave the sandbox's mount namespace again.
    # Otherwise it sees the host's.
    with ThreadPoolExecutor(1, "boot-id") as thread, suppress(OSError):
        await asyncio.get_running_loop().run_in_executor(thread, _mount, init, str(file))


def _mount(init: int, file: str) -> None:
    with (
        closing(open_mount(file)) as opened,
        closing(os.open(f"/proc/{init}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)) as namespace,
    ):
        unshare(CLONE_FS)
        setns(namespace, CLONE_NEWNS)
        move_mount(opened, _SHOWN_AT)
