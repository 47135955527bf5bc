import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox_engine.commands import CommandRequest, CommandTable
from sandbox_engine.container import cgroups
from sandbox_engine.container.boot_id import mount_boot_id
from sandbox_engine.container.cgroups import Cgroup
from sandbox_engine.container.freezer import FreezeFailed, Freezer, freezer_of
from sandbox_engine.container.memory_reclaim import MemoryReclaim
from sandbox_engine.container.oci_config import (
    ContainerSpec,
    ProcessUser,
    config,
    process,
)
from sandbox_engine.container.oci_runtime import OciRuntime
from sandbox_engine.container.snapshot_bases import SnapshotBases
from sandbox_engine.keeper.client import Keeper
from sandbox_engine.machine.capacity import Capacity
from sandbox_engine.network.network import Link, Network
from sandbox_engine.records.sandbox import InitRecord, LinkRecord, SandboxRecord
from sandbox_engine.records.sandbox_store import RecordStore
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.rootfs.root import Root
from sandbox_engine.sandboxes.init_process import identify, is_alive, wait_exit
from sandbox_engine.sandboxes.root_filesystems import RootFilesystems
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.system.settings import Settings
from sandbox_engine.volumes.volumes import Volumes

_LONGEST_END_S = 10.0


class Containers:
    """Creates and removes containers with their disks, roots and network links."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: RecordStore,
        keeper: Keeper,
        network: Network,
        volumes: Volumes,
        capacity: Capacity,
        snapshot_bases: SnapshotBases,
        init: Path,
    ) -> None:
        self._settings = settings
        self._store = store
        self._keeper = keeper
        self._network = network
        self._volumes = volumes
        self._capacity = capacity
        self._init = init
        self._root_filesystems = RootFilesystems(
            settings, store=store, snapshot_bases=snapshot_bases, run=keeper.run
        )
        self._cgroup_parent = settings.cgroup
        self._on_up: list[Callable[[Sandbox], Awaitable[None]]] = []
        self._memory = MemoryReclaim(after=settings.return_memory_after)
        self._runtime = OciRuntime(
            keeper.run, binary=settings.runtime, state_dir=settings.instance_run_dir / "runtime"
        )

    def on_up(self, callback: Callable[[Sandbox], Awaitable[None]]) -> None:
        """Register a callback for containers that were started or found running; it must not raise."""
        self._on_up.append(callback)

    async def prepare(self) -> None:
        """Create what all sandboxes share."""
        await self._root_filesystems.prepare(gateway=self._network.dns_address)

    async def start(self, record: SandboxRecord) -> Sandbox:
        """Start the sandbox's container from its image and its disk, if it has one."""
        if record.init is not None or record.link is not None:
            await self.stop(record)
        directory = self._store.path(record.id)
        link = await self._network.acquire(record.policy)
        record.link = LinkRecord(name=link.name, netns=link.netns, address=link.address)
        self._store.save(record)
        await self._root_filesystems.mount(record)
        await self._volumes.mount(record, self._root_filesystems.path(record.id))
        _write_config(directory / "bundle", self._spec(record, link))
        pid = await self._runtime.start(
            record.id, bundle=directory / "bundle", pid_file=directory / "init.pid"
        )
        record.init = identify(pid)
        await mount_boot_id(pid, file=directory / "bundle" / "boot_id")
        self._cgroup(record.id).limit_sockets(record.resources.memory_mb << 20)
        return await self._announce(self._sandbox(record, record.init, record.link))

    async def reattach(self, record: SandboxRecord) -> Sandbox | None:
        """Find the running container of a sandbox of an earlier engine."""
        if record.init is None or record.link is None or not is_alive(record.init):
            return None
        await self._root_filesystems.keep(record)
        await self._network.restore(_link(record.link), record.policy)
        self._volumes.note_mounted(record)
        sandbox = self._sandbox(record, record.init, record.link)
        sandbox.commands.adopt()
        return await self._announce(sandbox)

    async def _announce(self, sandbox: Sandbox) -> Sandbox:
        for callback in self._on_up:
            await callback(sandbox)
        return sandbox

    async def apply_network_policy(self, record: SandboxRecord) -> None:
        """Apply a new network policy."""
        if record.link is not None:
            await self._network.apply_network_policy(_link(record.link), record.policy)

    def images(self, record: SandboxRecord) -> list[Path]:
        """List the files on the machine's disk that the sandbox's writes enlarge."""
        return [self._root_filesystems.image(record.id), *self._volumes.images(record)]

    async def freeze(self, record: SandboxRecord) -> None:
        """Freeze all processes; memory is kept, and swapped if possible."""
        await self._freezer(record).freeze()
        self._memory.begin(self._cgroup(record.id))

    def thaw(self, record: SandboxRecord) -> None:
        """Thaw all processes."""
        self._memory.end(self._cgroup(record.id))
        self._freezer(record).thaw()

    async def stop(self, record: SandboxRecord) -> None:
        """Remove everything except the sandbox's files; missing parts are no error."""
        self._memory.end(self._cgroup(record.id))
        if record.init is not None and await self._end(record, record.init):
            await self._runtime.delete(record.id)
        else:
            await self._destroy(record.id)
        await self._root_filesystems.unmount(record.id)
        await self._volumes.unmount(record.id)
        if record.link is not None:
            await self._network.release(_link(record.link))
        record.init = record.link = None

    async def _end(self, record: SandboxRecord, init: InitRecord) -> bool:
        """Kill the init process, and with it all others; returns whether it has ended.

        The runtime's forced delete polls for the end only every 100 ms.
        """
        if not is_alive(init):
            return False
        with suppress(ProcessLookupError):
            os.kill(init.pid, signal.SIGKILL)
        self.thaw(record)  # frozen processes die when they are thawed
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_END_S):
                await wait_exit(init)
                return True
        return False

    async def remove(self, record: SandboxRecord) -> None:
        """Remove the sandbox with its files."""
        await self.stop(record)
        await asyncio.to_thread(self._store.remove, record.id)
        await self._volumes.release_mounts(record.id)

    async def sweep(self, records: Iterable[SandboxRecord]) -> None:
        """Remove leftovers of a crash that belong to no record."""
        kept = list(records)
        for record in kept:
            self._volumes.keep(record)
            self._root_filesystems.thaw(record.id)
        for stray in self._there() - {record.id for record in kept}:
            await self._destroy(stray)
            cgroups.remove(f"{self._cgroup_parent}/{stray}")
            await self._root_filesystems.unmount(stray)
        for directory in list(self._store.without_record()):
            await self._root_filesystems.unmount(directory.name)
            await asyncio.to_thread(self._store.remove, directory.name)
        links = [_link(record.link) for record in kept if record.link is not None]
        gone = await self._network.sweep(links)
        for record in kept:
            if record.link is not None and record.link.name in gone:
                record.link = None

    @property
    def has_any(self) -> bool:
        """Whether any sandbox has a container, control group or mounted root here."""
        return bool(self._there())

    def _there(self) -> set[str]:
        """List sandboxes with a container, control group or mounted root, without using records."""
        runtime_dir = self._settings.instance_run_dir / "runtime"
        known = {path.name for path in runtime_dir.iterdir()} if runtime_dir.is_dir() else set()
        return known | cgroups.children(self._cgroup_parent) | self._root_filesystems.mounted()

    def _spec(self, record: SandboxRecord, link: Link) -> ContainerSpec:
        return ContainerSpec(
            root=str(self._root_filesystems.path(record.id)),
            userns=link.userns,
            netns=link.netns,
            cgroup=self._cgroup(record.id).path,
            init=str(self._init),
            resources=record.resources,
        )

    async def _destroy(self, sandbox_id: str) -> None:
        with suppress(FreezeFailed):  # without a group nothing is frozen
            freezer_of(self._cgroup(sandbox_id)).thaw()
        await self._runtime.destroy(sandbox_id)

    def _freezer(self, record: SandboxRecord) -> Freezer:
        return freezer_of(self._cgroup(record.id))

    def _cgroup(self, sandbox_id: str) -> Cgroup:
        return Cgroup(f"{self._cgroup_parent}/{sandbox_id}")

    def _sandbox(self, record: SandboxRecord, init: InitRecord, link: LinkRecord) -> Sandbox:
        return Sandbox(
            record,
            directory=self._store.path(record.id),
            link=link,
            cgroup=self._cgroup(record.id),
            init=init,
            root=Root.at(f"/proc/{init.pid}/root"),
            commands=self._commands,
            disk_room=self._capacity.disk_room,
        )

    def _commands(self, sandbox: Sandbox) -> CommandTable:
        return CommandTable(
            self._keeper,
            sandbox.id,
            exec_argv=self._runtime.exec_argv,
            process_spec=_process,
            starting=sandbox.starting,
            oom_kills=sandbox.cgroup.oom_kills,
            directory=self._store.path(sandbox.id),
            uid_base=UID_BASE,
        )


def _write_config(bundle: Path, spec: ContainerSpec) -> None:
    bundle.mkdir(exist_ok=True, mode=0o700)
    (bundle / "config.json").write_text(json.dumps(config(spec)))


def _process(request: CommandRequest) -> dict[str, Any]:
    account = request.account
    return process(
        args=request.argv,
        env=request.environment,
        cwd=request.workdir,
        user=ProcessUser(account.uid, account.gid, account.groups),
        terminal=request.terminal,
    )


def _link(record: LinkRecord) -> Link:
    return Link(name=record.name, netns=record.netns, address=record.address)
