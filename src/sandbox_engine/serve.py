"""Runs the engine and shuts it down."""

import asyncio
import os
import resource
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from sandbox_engine.app import App
from sandbox_engine.container import cgroup_controllers
from sandbox_engine.control.app import build_api
from sandbox_engine.control.services import Services
from sandbox_engine.http import server
from sandbox_engine.http.local_authority import LocalAuthority
from sandbox_engine.http.local_tls import HttpOrTls
from sandbox_engine.provisional_start import ProvisionalStart
from sandbox_engine.sandboxes.infrastructure import Infrastructure, sole_owner
from sandbox_engine.system.log import get_logger
from sandbox_engine.system.settings import Settings
from sandbox_engine.wiring import assemble, git_door, report
from sandbox_http.protocol import HttpProtocol

log = get_logger(__name__)


async def serve(settings: Settings, *, provisional: bool = False) -> None:
    """Serve until stopped; sandboxes keep running.

    A provisional start is rolled back unless it is confirmed.
    """
    os.umask(0o022)  # sandboxes' users read some of the files written here
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    start = ProvisionalStart(provisional=provisional)
    try:
        await _serve(settings, start)
    except asyncio.CancelledError:
        if not start.is_withdrawn:
            raise


async def _serve(settings: Settings, start: ProvisionalStart) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(sole_owner(settings))
        listeners = server.listen(settings.host, settings.port)
        port = listeners[0].getsockname()[1]
        cgroup_controllers.enable()
        infrastructure = await Infrastructure.prepare(settings)
        stack.push_async_callback(_shut_down, infrastructure, start)
        with start.awaiting_confirmation():
            for conflict in await infrastructure.network.conflicts():
                log.warning("the host's firewall blocks sandboxes", conflict=conflict)
            services = await assemble(settings, infrastructure, port=port, running=stack)
            stack.push_async_callback(_discard_unconfirmed, services, start)
            door = git_door(settings, services)
            await stack.enter_async_context(
                server.serving_sandboxes(door, infrastructure.network.git_listener)
            )
            app = App(build_api(services), services)
            await server.serve(
                app,
                listeners,
                on_started=lambda: _print_instructions(settings, port),
                on_stopping=lambda: _stop(services),
                tls_cert=settings.tls_cert,
                tls_key=settings.tls_key,
                protocol=await _local_tls(settings, app, stack),
            )


async def _local_tls(
    settings: Settings, app: App, stack: AsyncExitStack
) -> Callable[..., HttpProtocol] | None:
    """Serve HTTPS as well, where the engine is reached by names below localhost."""
    if not settings.serves_local_tls:
        return None
    authority = LocalAuthority(settings.local_authority)
    authority.create_if_missing()
    address = await stack.enter_async_context(server.serving_tls(app, authority.server_context()))
    return partial(HttpOrTls, tls_address=address)


async def _stop(services: Services) -> None:
    services.warm_pool.stop()
    await services.sandboxes.close()


async def _discard_unconfirmed(services: Services, start: ProvisionalStart) -> None:
    if not start.is_confirmed:
        await services.warm_pool.remove_created()


async def _shut_down(infrastructure: Infrastructure, start: ProvisionalStart) -> None:
    if start.is_confirmed:
        await infrastructure.detach()
    else:
        await infrastructure.roll_back()


async def reset(settings: Settings) -> None:
    """Delete every sandbox of this state directory."""
    with sole_owner(settings):
        cgroup_controllers.enable()
        infrastructure = await Infrastructure.prepare(settings)
        lifecycle = await infrastructure.adopt()
        for record in list(lifecycle.records.values()):
            await lifecycle.kill(record, "the engine is being reset")
        await infrastructure.snapshot_bases.collect([])
        await infrastructure.snapshot_bases.sweep()
        await infrastructure.destroy()


def _print_instructions(settings: Settings, port: int) -> None:
    scheme = "http" if settings.tls_cert is None else "https"
    host = settings.host if ":" not in settings.host else f"[{settings.host}]"
    url = f"{scheme}://{host}:{port}"
    key = "YOUR_KEY" if settings.api_key else f'"$(sudo cat {settings.state_dir}/api.key)"'
    proof = "from e2b import Sandbox; print(Sandbox.create().commands.run('uname -a').stdout)"
    report(
        f"The engine is listening on {url}\n"
        "Paste this into another terminal to create a sandbox:\n"
        f"  E2B_API_KEY={key} E2B_API_URL={url} E2B_SANDBOX_URL={url} "
        f'{sys.executable} -c "{proof}"'
    )
    if settings.serves_local_tls:
        authority = LocalAuthority(settings.local_authority).certificate
        report(
            f"https://PORT-SANDBOX.localhost:{port} works too. To trust its certificates: sudo cp {authority} "
            "/usr/local/share/ca-certificates/sandbox-engine.crt && sudo update-ca-certificates; "
            "browsers import the file in their settings."
        )
