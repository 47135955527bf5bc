from collections.abc import Iterable

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.state import ENDED, State
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.errors import SandboxGone
from sandbox_server.providers.protocol.provider import ProviderSandbox
from sandbox_server.providers.registry import Backends

_SEARCHED = ENDED | {State.STARTING}


async def ask(backends: Backends, row: Sandbox) -> ProviderSandbox | None:
    """Ask a sandbox's provider for it; of several with its id one is left."""
    if row.backend is None:
        return None
    backend = backends[row.backend]
    if row.backend_sandbox_id is None or row.state in _SEARCHED:
        return await _keep_one(backend, await backend.find(row.id), row.backend_sandbox_id)
    try:
        return await backend.info(row.backend_sandbox_id)
    except SandboxGone:
        return None


async def _keep_one(
    backend: E2BBackend, found: Iterable[ProviderSandbox], known_id: str | None
) -> ProviderSandbox | None:
    """Keep the one that the row has, or else the oldest."""
    ours = sorted(found, key=lambda one: (one.id != known_id, one.started_at, one.id))
    for other in ours[1:]:
        await backend.kill(other.id)
    return ours[0] if ours else None
