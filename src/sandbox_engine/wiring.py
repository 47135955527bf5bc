import asyncio
import secrets
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from sandbox_engine.control.services import Services
from sandbox_engine.envd.loopback import serve_inside
from sandbox_engine.git.door import GitDoor
from sandbox_engine.git.server_address import ServerAddressSource
from sandbox_engine.images.bases.bases import BaseImages
from sandbox_engine.images.disk_space import DiskSpace
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.registry.registry import Registry
from sandbox_engine.images.store import ImageStore
from sandbox_engine.machine.resources import MIB
from sandbox_engine.metrics.sampler import Sampler
from sandbox_engine.records.catalog import Catalog
from sandbox_engine.records.snapshot_store import SnapshotStore
from sandbox_engine.sandboxes.disk_guard import DiskGuard
from sandbox_engine.sandboxes.infrastructure import Infrastructure
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.service import SandboxService
from sandbox_engine.sandboxes.warm_pool import WarmPool
from sandbox_engine.snapshots.forks import Forks
from sandbox_engine.snapshots.snapshots import Snapshots
from sandbox_engine.system.private_files import write_private
from sandbox_engine.system.settings import Settings
from sandbox_engine.templates.building.builder import Builder
from sandbox_engine.templates.housekeeping import Housekeeping
from sandbox_engine.templates.library import BASE
from sandbox_engine.templates.templates import Templates

_BYTES = 20  # the SDK expects `e2b_` and forty hex digits


async def assemble(
    settings: Settings, infrastructure: Infrastructure, *, port: int, running: AsyncExitStack
) -> Services:
    """Build all services; `running` stops background tasks at its exit."""
    images = ImageStore(settings.images, owner=settings.state_dir)
    recipe = BaseRecipe.of_host(certificates_dir=settings.certificates_dir)
    bases = BaseImages(images, recipe=recipe, registry=_registry(settings))
    base = await bases.ensure_base(report=report)
    api_key = find_api_key(settings)
    infrastructure.containers.on_up(serve_inside)
    lifecycle = await infrastructure.adopt()
    builder = Builder(settings, infrastructure, lifecycle, images=images, bases=bases)
    templates = await Templates.open(
        settings, infrastructure.capacity, base=base, builder=builder, key=api_key
    )
    running.push_async_callback(templates.close)
    catalog = Catalog()
    catalog.add(templates.library.find)
    catalog.on_use(templates.library.note_use)
    catalog.add(infrastructure.snapshots.find_template)
    in_use = partial(_layers_in_use, templates, builder, lifecycle, infrastructure.snapshots)
    housekeeping = Housekeeping(images, builder, templates, layers_in_use=in_use)
    await housekeeping.tidy()
    always = (*settings.ready_templates, BASE)
    warm_pool = WarmPool(settings, lifecycle, catalog=catalog, always=always)
    service = SandboxService(
        settings, lifecycle, catalog=catalog, source=warm_pool, volumes=infrastructure.volumes
    )
    snapshots = await Snapshots.open(infrastructure, lifecycle, service=service, catalog=catalog)
    sampler = Sampler(
        service.running, find_running=service.find_running, directory=infrastructure.store.path
    )
    guard = DiskGuard(
        service, builder, capacity=infrastructure.capacity, images=infrastructure.containers.images
    )
    _run_in_background(
        running,
        templates.library.keep_counts(),
        lifecycle.deadlines.run(),
        sampler.run(),
        warm_pool.run(),
        guard.run(),
        housekeeping.run(),
    )
    return Services(
        sandboxes=service,
        warm_pool=warm_pool,
        catalog=catalog,
        sampler=sampler,
        volumes=infrastructure.volumes,
        templates=templates,
        snapshots=snapshots,
        forks=Forks(infrastructure.snapshots, snapshots, lifecycle, service=service),
        disk_mb=settings.disk_mb,
        api_key=api_key,
        domain=settings.domain or f"localhost:{port}",
    )


def git_door(settings: Settings, services: Services) -> GitDoor:
    """Build the way from sandboxes to the server's git endpoint."""
    servers = ServerAddressSource(settings.git_server, settings.git_server_file)
    return GitDoor(services.sandboxes, servers, api_key=services.api_key)


def _run_in_background(running: AsyncExitStack, *background: Coroutine[Any, Any, None]) -> None:
    for work in background:
        running.callback(asyncio.create_task(work).cancel)


def _registry(settings: Settings) -> Registry:
    room = DiskSpace(
        settings.images, limit=settings.image_mb * MIB, kept_free=settings.min_free_disk_mb * MIB
    )
    return Registry(insecure=frozenset(settings.insecure_registries), room=room)


def _layers_in_use(
    templates: Templates, builder: Builder, lifecycle: Lifecycle, snapshots: SnapshotStore
) -> set[Path]:
    kept = [record.layers for record in lifecycle.records.values()]
    kept += [record.layers for record in snapshots.records.values()]
    return {*templates.library.layers(), *builder.layers(), *chain.from_iterable(kept)}


def report(text: str) -> None:
    """Print a message to standard output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def find_api_key(settings: Settings) -> str:
    """Give the key callers send: the one in the settings, else the one kept, made when missing."""
    if settings.api_key is not None:
        return settings.api_key
    path = settings.state_dir / "api.key"
    if not path.exists():
        write_private(path, f"e2b_{secrets.token_hex(_BYTES)}\n".encode())
    return path.read_text().strip()
