"""A whole server with a sandbox, and how its callers from outside reach what listens in there."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import httpx
from e2b import AsyncSandbox
from pydantic import SecretStr

from sandbox_server.access.api_keys import ApiKeys, KeyRequest
from sandbox_server.app import create_app
from sandbox_server.components import Components
from sandbox_server.db.models import Sandbox
from sandbox_server.http.server import ForwardedUpgrades, HttpServer
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.settings import Settings
from sandbox_server.supervisor.listeners import listen
from sandbox_server.supervisor.server_main import end_streams
from sandbox_server.templates.bundled import NO_BUNDLED_TEMPLATES, BundledTemplates
from sandbox_server.wiring import open_server
from tests.engine.engine_process import EngineProcess
from tests.server.support.request_recorder import start_recorder
from tests.server.support.rows import add_default_tenant

PORT = 3000
WAIT = 30


@dataclass(frozen=True)
class Outside:
    """A server that listens, with an admin's key."""

    components: Components
    port: int
    key: str

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def host_of(self, sandbox_id: str, port: int) -> str:
        return f"{port}-{sandbox_id}.{self.host}"

    def api(self, **headers: str) -> httpx.AsyncClient:
        """Call the API, with the admin's key."""
        return self._client({"X-API-Key": self.key, **headers})

    def at(self, sandbox_id: str, port: int, **headers: str) -> httpx.AsyncClient:
        """Call a port by its own host, with nothing but these headers."""
        return self._client({"Host": self.host_of(sandbox_id, port), **headers})

    def _client(self, headers: dict[str, str]) -> httpx.AsyncClient:
        base_url = f"http://127.0.0.1:{self.port}"
        return httpx.AsyncClient(base_url=base_url, headers=headers, timeout=WAIT)

    async def new_key(self, **fields: Any) -> tuple[str, str]:
        """Make a key; gives its id and its secret."""
        api_keys = ApiKeys(self.components.sessions, self.components.authenticator)
        issued = await api_keys.issue(KeyRequest(**fields))
        return issued.owned.key.id, issued.secret

    async def say(self, *parts: bytes, until: bytes | None = None) -> bytes:
        """Send bytes on a connection of their own; gives what is answered until it ends, or says that."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = b""
        try:
            async with asyncio.timeout(WAIT):
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                while until is None or until not in answer:
                    more = await reader.read(65536)
                    if not more:
                        assert until is None, answer
                        break
                    answer += more
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        return answer


@asynccontextmanager
async def serving_outside(
    database_url: str,
    engine: EngineProcess,
    *,
    bundled: BundledTemplates = NO_BUNDLED_TEMPLATES,
    backend: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> AsyncIterator[Outside]:
    """Run all of a server on a database and an engine, as its process does, but in this one."""
    local = BackendSettings(
        name="local",
        api_key=SecretStr(engine.api_key),
        api_url=engine.url,
        sandbox_url=engine.url,
        domain=f"localhost:{engine.port}",
        **backend,
    )
    async with serving(database_url, (local,), bundled=bundled, **settings) as outside:
        yield outside


@asynccontextmanager
async def serving(
    database_url: str,
    backends: tuple[BackendSettings, ...],
    *,
    bundled: BundledTemplates = NO_BUNDLED_TEMPLATES,
    **settings: Any,
) -> AsyncIterator[Outside]:
    """Run all of a server on a database and backends."""
    listeners = listen("127.0.0.1", 0)
    port = listeners[0].getsockname()[1]
    found = Settings(database_url=SecretStr(database_url), backends=backends, port=port, **settings)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_server(found, bundled=bundled))
        components, started = server.components, asyncio.Event()
        http = HttpServer(
            create_app(components),
            stop_timeout=timedelta(seconds=5),
            on_started=started.set,
            on_stop=lambda: end_streams(components),
            is_forwarded=ForwardedUpgrades(components.public_address),
        )
        task = asyncio.create_task(http._serve(listeners))
        await started.wait()
        await add_default_tenant(components.sessions)
        outside = Outside(components, port, "")
        _, key = await outside.new_key(scopes=["admin"])
        try:
            yield Outside(components, port, key)
        finally:
            http.should_exit = True
            end_streams(components)
            await task


@asynccontextmanager
async def new_sandbox(outside: Outside, **fields: Any) -> AsyncIterator[str]:
    """Have a sandbox for as long as the block lasts, with a recorder at its port; gives its id."""
    async with outside.api() as api:
        made = await api.post("/v1/sandboxes", json=fields)
        assert made.status_code == 201, made.text
        sandbox_id: str = made.json()["id"]
        try:
            await start_recorder(await inside(outside, sandbox_id), PORT)
            yield sandbox_id
        finally:
            await api.delete(f"/v1/sandboxes/{sandbox_id}")


async def inside(outside: Outside, sandbox_id: str) -> AsyncSandbox:
    """Reach into a sandbox as its server does."""
    components = outside.components
    async with components.sessions() as session:
        row = await session.get_one(Sandbox, sandbox_id)
    access = components.controller.find_access(row)
    assert access is not None
    assert row.backend is not None
    backend = components.backends[row.backend]
    assert isinstance(backend, E2BBackend)
    return backend.handle(access)
