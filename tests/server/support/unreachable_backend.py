from contextlib import asynccontextmanager

from pydantic import SecretStr

from sandbox_server.admin.backends import register_backends
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.registry import open_backends
from sandbox_server.providers.settings import BackendSettings


@asynccontextmanager
async def backends_nowhere(sessions):
    """Name a provider that nobody will find, and that has no place for anybody."""
    unreachable = BackendSettings(
        name="nowhere",
        api_key=SecretStr("k"),
        api_url="http://127.0.0.1:1",
        sandbox_url="http://127.0.0.1:1",
        capacity=0,
    )
    backends = open_backends([unreachable], installation_id=new_id())
    await register_backends(sessions, backends)
    yield backends
    await backends.close()
