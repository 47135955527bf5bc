import asyncio
import json
import os
import shutil
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system.syscalls import (
    MNT_DETACH,
    MS_NODEV,
    mount,
    unmount,
)


@dataclass(frozen=True)
class BareContainer:
    id: str
    directory: Path


class BareRuntime:
    """The floor: the times of `runc` for the bundle of one of the engine's sandboxes."""

    def __init__(self, directory: Path, config: dict[str, Any], *, lower: str) -> None:
        self._directory = directory
        self._config = config
        self._lower = lower
        self._numbers = count()
        self._containers: dict[str, BareContainer] = {}

    async def start(self) -> BareContainer:
        """Mount an overlay on the sandbox's image and run the sandbox's bundle on it."""
        container = self._prepare(f"{self._directory.name}-{next(self._numbers)}")
        await self._runc(
            *("run", "--detach", "--no-new-keyring", "--bundle", str(container.directory)),
            container.id,
        )
        return container

    async def run_true(self, container: BareContainer) -> None:
        """Run the equivalent of the SDK's `commands.run("true")`."""
        await self._runc(
            *("exec", "--user", "1000:1000", "--cwd", "/home/user", "--env", "HOME=/home/user"),
            *(container.id, "/bin/bash", "-l", "-c", "true"),
        )

    async def rest(self, container: BareContainer) -> None:
        """Pause the container and resume it."""
        await self._runc("pause", container.id)
        await self._runc("resume", container.id)

    async def delete(self, container: BareContainer) -> None:
        """Remove the container and its mount."""
        await self._runc("delete", "--force", container.id)
        unmount(str(container.directory / "root"), MNT_DETACH)
        del self._containers[container.id]

    async def close(self) -> None:
        """Remove everything."""
        for container in list(self._containers.values()):
            await self.delete(container)
        shutil.rmtree(self._directory)

    def _prepare(self, name: str) -> BareContainer:
        container = BareContainer(name, self._directory / name)
        upper, work, root = (container.directory / part for part in ("upper", "work", "root"))
        for directory in (upper, work, root):
            directory.mkdir(parents=True)
        os.chown(upper, UID_BASE, UID_BASE)
        options = f"lowerdir={self._lower},upperdir={upper},workdir={work}"
        mount("overlay", str(root), "overlay", MS_NODEV, options)
        self._containers[name] = container
        linux = self._config["linux"] | {"cgroupsPath": f"/{name}"}
        config = self._config | {"root": {"path": str(root)}, "linux": linux}
        (container.directory / "config.json").write_text(json.dumps(config))
        return container

    async def _runc(self, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *("runc", "--root", str(self._directory / "state")),
            *arguments,
            stdin=DEVNULL,
            stdout=DEVNULL,
        )
        if await process.wait() != 0:
            raise RuntimeError(f"runc {arguments[0]} exited with {process.returncode}")


@asynccontextmanager
async def bare_runtime(sandbox_directory: Path) -> AsyncIterator[BareRuntime]:
    """Read the bundle of a running sandbox, with its namespaces."""
    config = json.loads((sandbox_directory / "bundle" / "config.json").read_text())
    directory = Path(tempfile.mkdtemp(prefix="sandbox-bench-floor-", dir="/var/tmp"))
    directory.chmod(0o711)  # the container's root, a stranger on the host, passes through it
    runtime = BareRuntime(directory, config, lower=_lower_directories(sandbox_directory))
    try:
        yield runtime
    finally:
        await runtime.close()


def _lower_directories(sandbox_directory: Path) -> str:
    """List the lower directories of the sandbox's overlay, uppermost first."""
    record = json.loads((sandbox_directory / "record.json").read_text())
    engine_layer = sandbox_directory.parents[1] / "engine-layer"
    return ":".join(map(str, [engine_layer, *reversed(record["layers"])]))
