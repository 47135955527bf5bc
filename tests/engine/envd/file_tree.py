"""A file tree as sandboxes have it, without a runtime: an overlay in a mount namespace of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import cast

from sandbox_engine.envd.app import EnvdApp
from sandbox_engine.rootfs.accounts import Accounts
from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import UID_BASE, Owner
from sandbox_engine.rootfs.root import Root
from sandbox_engine.sandboxes.sandbox import Sandbox, Usage
from tests.engine.proxy_server import serving

USER = Owner(1000, 1000)
CANARY = "the host's own secret"

PASSWD = """root:x:0:0:root:/root:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
user:x:1000:1000:,,,:/home/user:/bin/bash
"""
GROUP = "root:x:0:\nnogroup:x:65534:\nuser:x:1000:\nstaff:x:50:user\nsudo:x:27:other,user\n"

_BUILD = f"""
set -e
mount --make-rprivate /
mount -t overlay overlay -o nodev,lowerdir=lower,upperdir=upper,workdir=work root
mount --rbind /usr root/usr
mount -o remount,bind,ro root/usr
mount -t proc proc root/proc
mount -t sysfs sysfs root/sys
mount -t tmpfs -o mode=755,uid={UID_BASE},gid={UID_BASE} dev root/dev
mkdir -m 1777 root/dev/shm
mount -t tmpfs -o mode=1777,uid={UID_BASE},gid={UID_BASE} shm root/dev/shm
mount -t tmpfs -o size=4m,mode=777,uid={UID_BASE},gid={UID_BASE} small root/small
mknod -m 666 root/dev/null c 1 3
mount --bind root/etc/passwd root/bound
cd root
pivot_root . mnt
umount -l /mnt
echo ready
exec sleep infinity
"""


class FileBox:
    """Stands where the engine has a sandbox, with the same attributes and real files."""

    id = "box"
    default_user = "user"
    default_workdir = ""
    commands = None

    def disk_room(self) -> int:
        """Have room for all that the tests write."""
        return 1 << 40

    def __init__(self, directory: Path, pid: int) -> None:
        self.spool_dir = directory / "spool"
        self.inside = Path(f"/proc/{pid}/root")
        self.root = Root.at(str(self.inside))
        self.access_token: str | None = None
        self.envs: Mapping[str, str] = {"E2B_SANDBOX": "true"}
        self._pid = pid

    @property
    def accounts(self) -> Accounts:
        return Accounts.read(self.root)

    def usage(self) -> Usage:
        return Usage(
            at=1.0,
            cpu_count=2,
            cpu_used_pct=12.5,
            mem_total=512 << 20,
            mem_used=64 << 20,
            mem_cache=1 << 20,
            disk_total=1 << 30,
            disk_used=1 << 20,
        )

    def command(self, script: str, *, uid: int = 0) -> list[str]:
        """Say how to run a script inside, as one of the sandbox's own users."""
        account = str(UID_BASE + uid)
        enter = ["nsenter", "--target", str(self._pid), "--mount", "--pid"]
        become = ["setpriv", "--reuid", account, "--regid", account, "--clear-groups"]
        return [*enter, *become, "sh", "-c", f"cd ~user\n{script}"]

    def run(self, script: str, *, uid: int = 0) -> str:
        """Run a script inside to its end."""
        done = subprocess.run(
            self.command(script, uid=uid), check=True, capture_output=True, text=True
        )
        return done.stdout

    def clear(self) -> None:
        """Empty the places that tests write to."""
        places = [str(self.inside / place) for place in ("home/user", "small", "dev/shm")]
        subprocess.run(["find", *places, "-mindepth", "1", "-delete"], check=True)

    def write(self, path: str, content: str | bytes = "") -> Path:
        """Put a file there, as the sandbox's user."""
        file = self.inside / path.lstrip("/")
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.chown(file, UID_BASE + 1000, UID_BASE + 1000)
        return file


@contextmanager
def file_box() -> Iterator[FileBox]:
    """Set up a tree with accounts, a home, and a canary outside that nothing inside may reach."""
    directory = Path(tempfile.mkdtemp(prefix="filebox-"))
    for name in ("lower", "upper", "work", "root", "spool"):
        (directory / name).mkdir()
    (directory / "canary").write_text(CANARY)
    _make_lower(directory / "lower")
    os.chown(directory / "upper", UID_BASE, UID_BASE)
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    process = subprocess.Popen(
        [*unshare, "sh", "-c", _BUILD], cwd=directory, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        box = FileBox(directory, int(children[0]))
        try:
            yield box
        finally:
            box.root.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        shutil.rmtree(directory)


@asynccontextmanager
async def answering(box: FileBox) -> AsyncIterator[str]:
    """Serve the box as the engine serves a sandbox's port 49983, and yield where."""
    async with serving(EnvdApp(cast("Sandbox", box))) as port:
        yield f"http://127.0.0.1:{port}"


def read(root: Root, path: str) -> str:
    """Read a small text file through a root."""
    with closing(root.open_file(path)) as descriptor:
        return os.read(descriptor, 1 << 20).decode()


def write(root: Root, path: str, text: str) -> None:
    """Write a text through a root, as the sandbox's user."""
    descriptor, _ = root.open_for_writing(path, USER)
    with closing(descriptor):
        os.pwrite(descriptor, text.encode(), 0)


def names(directory: Path) -> list[str]:
    """List a directory of the host."""
    return sorted(entry.name for entry in directory.iterdir())


def _make_lower(lower: Path) -> None:
    for name in "etc home/user tmp usr dev proc sys mnt small root".split():
        (lower / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (lower / name).symlink_to(f"usr/{name}")
    (lower / "etc/passwd").write_text(PASSWD)
    (lower / "etc/group").write_text(GROUP)
    (lower / "etc/shadow").write_text("root:*:\n")
    (lower / "bound").write_text("")
    for made in [lower, *lower.rglob("*")]:
        os.chown(made, UID_BASE, UID_BASE, follow_symlinks=False)
    os.chown(lower / "home/user", UID_BASE + 1000, UID_BASE + 1000)
    (lower / "tmp").chmod(0o1777)
