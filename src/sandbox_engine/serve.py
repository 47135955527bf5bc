"""Puts the engine together, runs it, and takes it apart."""

import asyncio
import fcntl
import os
import resource
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox_engine import cgroups
from sandbox_engine.adoption import adopt
from sandbox_engine.api.app import build_api
from sandbox_engine.app import App
from sandbox_engine.catalog import Catalog, Template
from sandbox_engine.containers import Containers
from sandbox_engine.engine import Engine
from sandbox_engine.errors import CannotRun
from sandbox_engine.http import server
from sandbox_engine.images.image import Image
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.store import ImageStore
from sandbox_engine.keeper.client import Keeper
from sandbox_engine.lifecycle import Lifecycle
from sandbox_engine.log import get_logger
from sandbox_engine.metrics import Sampler
from sandbox_engine.network.network import Network
from sandbox_engine.settings import Settings
from sandbox_engine.store import RecordStore

log = get_logger(__name__)

_BASE = "base"
_API_KEY_BYTES = 20  # the SDK expects `e2b_` and forty hex digits


async def serve(settings: Settings) -> None:
    """Serve until told to stop; the sandboxes go on without the engine."""
    os.umask(0o022)  # sandboxes' own users read some of what is written here
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with AsyncExitStack() as stack:
        stack.enter_context(_sole_owner(settings))
        listeners = server.listen(settings.host, settings.port)
        ground = await _Ground.prepare(settings)
        stack.push_async_callback(ground.leave)
        for conflict in await ground.network.conflicts():
            log.warning("the host's firewall is in the way", conflict=conflict)
        images = ImageStore(_images_dir(settings), owner=settings.state_dir)
        base = await _ensure_base(images, settings)
        catalog = Catalog()
        catalog.add({_BASE: Template(_BASE, _BASE, base)}.get)
        lifecycle = await ground.adopt()
        in_use = (layer for record in lifecycle.records.values() for layer in record.layers)
        await images.remove_unused({*base.layers, *in_use})
        engine = Engine(settings, lifecycle, catalog=catalog)
        sampler = Sampler(engine.running)
        for work in (lifecycle.deadlines.run(), sampler.run()):
            stack.callback(asyncio.create_task(work).cancel)
        port = listeners[0].getsockname()[1]
        domain = settings.domain or f"localhost:{port}"
        api_key = _api_key(settings)
        api = build_api(engine, sampler, api_key=api_key, domain=domain)
        await server.serve(
            App(api, engine, domain=domain, api_key=api_key),
            listeners,
            on_started=lambda: _greet(settings, port),
            on_stopping=lifecycle.close,
            tls_cert=settings.tls_cert,
            tls_key=settings.tls_key,
        )


async def reset(settings: Settings) -> None:
    """End every sandbox of this state directory and delete its files."""
    with _sole_owner(settings):
        ground = await _Ground.prepare(settings)
        lifecycle = await ground.adopt()
        for record in list(lifecycle.records.values()):
            await lifecycle.kill(record, "the engine is being reset")
        await ground.clear()
    cgroups.remove(settings.cgroup)
    shutil.rmtree(settings.instance_run_dir)


@dataclass(frozen=True)
class _Ground:
    """What sandboxes stand on, whoever asks for them."""

    keeper: Keeper
    network: Network
    store: RecordStore
    containers: Containers

    @classmethod
    async def prepare(cls, settings: Settings) -> Self:
        run_dir = settings.instance_run_dir
        store = RecordStore(settings.state_dir / "sandboxes")
        keeper = await Keeper.connect(run_dir / "keeper")
        network = await Network.open(
            instance=settings.instance,
            run_dir=run_dir,
            state_dir=settings.state_dir,
            keeper=keeper,
            pool_size=settings.pool_size,
            subnet_pool=settings.subnet_pool,
            allow=settings.allow_private,
        )
        init = shutil.which("catatonit")
        assert init is not None, "checked before the engine starts"
        containers = Containers(
            settings, store=store, keeper=keeper, network=network, init=Path(init)
        )
        await containers.prepare()
        return cls(keeper, network, store, containers)

    async def adopt(self) -> Lifecycle:
        """Take over what is there."""
        lifecycle = Lifecycle(self.store, self.containers)
        await adopt(self.store, self.containers, lifecycle)
        self.keeper.release_unclaimed()
        return lifecycle

    async def leave(self) -> None:
        """Stop, and let everything go on."""
        await self.network.close()
        await self.keeper.close()

    async def clear(self) -> None:
        """Stop, and leave nothing behind."""
        await self.network.destroy()
        await self.keeper.close()


@contextmanager
def _sole_owner(settings: Settings) -> Iterator[None]:
    """Make sure that no other engine works on the same state directory."""
    run_dir = settings.instance_run_dir
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
    descriptor = os.open(run_dir / "engine.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CannotRun(f"another engine works on {settings.state_dir}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _images_dir(settings: Settings) -> Path:
    return settings.images_dir or settings.state_dir / "images"


async def _ensure_base(images: ImageStore, settings: Settings) -> Image:
    recipe = BaseRecipe.of_host(certificates_dir=settings.certificates_dir)
    return await images.ensure_base(recipe=recipe, progress=_say)


def _api_key(settings: Settings) -> str:
    if settings.api_key is not None:
        return settings.api_key
    path = settings.state_dir / "api.key"
    if not path.exists():
        fresh = path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"e2b_{secrets.token_hex(_API_KEY_BYTES)}\n".encode())
        finally:
            os.close(descriptor)
        fresh.rename(path)
    return path.read_text().strip()


def _greet(settings: Settings, port: int) -> None:
    scheme = "http" if settings.tls_cert is None else "https"
    host = settings.host if ":" not in settings.host else f"[{settings.host}]"
    url = f"{scheme}://{host}:{port}"
    key = "YOUR_KEY" if settings.api_key else f'"$(sudo cat {settings.state_dir}/api.key)"'
    proof = "from e2b import Sandbox; print(Sandbox.create().commands.run('uname -a').stdout)"
    _say(
        f"The engine is listening on {url}\n"
        "Paste this into another terminal to see a sandbox at work:\n"
        f"  E2B_API_KEY={key} E2B_API_URL={url} E2B_SANDBOX_URL={url} "
        f'{sys.executable} -c "{proof}"'
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
