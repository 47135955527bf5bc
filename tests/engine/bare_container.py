"""A container of the bare runtime over the machine's own /usr: up in a moment, no engine around."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from sandbox_engine.commands import (
    Command,
    CommandRequest,
    CommandTable,
    Ended,
    Follower,
    TerminalSize,
)
from sandbox_engine.commands.spool import Output
from sandbox_engine.container.oci_config import ProcessUser, process
from sandbox_engine.container.oci_runtime import OciRuntime
from sandbox_engine.keeper.client import Keeper
from sandbox_engine.rootfs.accounts import Account
from sandbox_engine.rootfs.ownership import UID_BASE

CONTAINER = "scratch"
USER = Account("user", 1000, 1000, (1000,), "/home/user", "/bin/bash")
ENVIRONMENT = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home/user", "USER": "user"}
PROTECTED = ("bin", "sbin", "lib", "lib64")


@contextmanager
def scratch_dir() -> Iterator[Path]:
    """Make a directory whose path is short enough for sockets, open to the container's root."""
    directory = Path(tempfile.mkdtemp(prefix="scratch-"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        for pid in keeper_pids(directory / "run"):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory)


class Container:
    """The container, and what an engine uses to run commands in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run_dir = directory / "run"
        self.spool_dir = directory / "spool"
        self.oom_kills = 0
        self._runtime_dir = directory / "runtime"

    def make(self) -> None:
        """Write the container's root and its bundle."""
        self.spool_dir.mkdir()
        _make_root(self.directory / "root")
        config = _config(self.directory / "root")
        (self.directory / "config.json").write_text(json.dumps(config))

    async def start(self, keeper: Keeper) -> None:
        runtime = OciRuntime(keeper.run, binary="runc", state_dir=self._runtime_dir)
        await runtime.start(CONTAINER, bundle=self.directory, pid_file=self.directory / "init.pid")

    def remove(self) -> None:
        root = ["--root", str(self._runtime_dir)]
        subprocess.run(["runc", *root, "delete", "--force", CONTAINER], check=True)

    def table(self, keeper: Keeper, *, before: str = "") -> CommandTable:
        """Make the table of an engine that has this keeper; `before` is run ahead of the runtime."""
        runtime = OciRuntime(keeper.run, binary="runc", state_dir=self._runtime_dir)

        def exec_argv(container_id: str, **paths: Any) -> list[str]:
            ahead = ["sh", "-c", f'{before}; exec "$@"', "sh"] if before else []
            return [*ahead, *runtime.exec_argv(container_id, **paths)]

        return CommandTable(
            keeper,
            CONTAINER,
            exec_argv=exec_argv,
            process_spec=_process_spec,
            starting=_unhindered,
            oom_kills=lambda: self.oom_kills,
            directory=self.spool_dir,
            uid_base=UID_BASE,
        )


def bash(
    script: str,
    *,
    stdin: bool = False,
    terminal: TerminalSize | None = None,
    tag: str | None = None,
    envs: dict[str, str] | None = None,
) -> CommandRequest:
    """Ask for a command line as the SDK would."""
    return CommandRequest(
        cmd="/bin/bash",
        args=("-c", script),
        envs=envs or {},
        cwd=None,
        tag=tag,
        terminal=terminal,
        stdin=stdin,
        account=USER,
        workdir="/home/user",
        environment=ENVIRONMENT | (envs or {}),
    )


async def follow_to_end(follower: Follower) -> tuple[list[Output], Ended]:
    """Receive all that is still to come of a command."""
    outputs: list[Output] = []
    while True:
        item = await follower.receive()
        if isinstance(item, Ended):
            follower.close()
            return outputs, item
        outputs.append(item)


async def read_until(follower: Follower, wanted: bytes) -> bytes:
    """Receive what a command writes up to the wanted text."""
    seen = b""
    while wanted not in seen:
        item = await follower.receive()
        assert isinstance(item, Output), f"ended with {item} after {seen!r}"
        seen += item.data
    return seen


async def run(table: CommandTable, request: CommandRequest) -> tuple[bytes, Ended]:
    """Run a command to its end; its output in the order of arrival."""
    command: Command = await table.start(request)
    outputs, ended = await follow_to_end(command.follow())
    return b"".join(output.data for output in outputs), ended


def keeper_pids(run_dir: Path) -> list[int]:
    """Find every keeper that serves a run directory."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and "sandbox_engine.keeper.process" in (arguments := _cmdline(entry))
        and str(run_dir) in arguments
    ]


def keeper_pid(run_dir: Path) -> int:
    """Find the one keeper that serves a run directory."""
    (pid,) = keeper_pids(run_dir)
    return pid


def descriptors(pid: int) -> list[str]:
    """List what a process has open, but for the look at itself."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    return sorted(found)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells of."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _cmdline(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _make_root(root: Path) -> None:
    root.mkdir()
    for name in ("usr", "etc", "tmp", "home/user", "proc", "dev"):
        (root / name).mkdir(parents=True)
    for name in PROTECTED:
        (root / name).symlink_to(f"usr/{name}")
    (root / "etc/passwd").write_text(
        "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n"
    )
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    (root / "tmp").chmod(0o1777)
    os.chown(root / "home/user", UID_BASE + 1000, UID_BASE + 1000)
    os.chown(root, UID_BASE, UID_BASE)


def _config(root: Path) -> dict[str, Any]:
    catatonit = shutil.which("catatonit")
    ids = {"containerID": 0, "hostID": UID_BASE, "size": 65_536}
    return {
        "ociVersion": "1.0.2",
        "process": process(args=["/.init", "-P"], env={}, cwd="/", user=ProcessUser(0, 0)),
        "root": {"path": str(root)},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
            },
            {"destination": "/usr", "source": "/usr", "options": ["rbind", "ro"]},
            {"destination": "/.init", "source": catatonit, "options": ["bind", "ro"]},
        ],
        "linux": {
            "namespaces": [
                {"type": kind} for kind in ("user", "pid", "ipc", "uts", "mount", "network")
            ],
            "uidMappings": [ids],
            "gidMappings": [ids],
            "cgroupsPath": f"/{root.parent.name}",
        },
    }


def _process_spec(request: CommandRequest) -> dict[str, Any]:
    return process(
        args=request.argv,
        env=request.environment,
        cwd=request.workdir,
        user=ProcessUser(request.account.uid, request.account.gid, request.account.groups),
        terminal=request.terminal,
    )


@asynccontextmanager
async def _unhindered() -> AsyncIterator[None]:
    yield
