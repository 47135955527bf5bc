from collections.abc import Iterable

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.deadlines import Rules, extend_provider
from sandbox_server.domain.errors import BackendRefused
from sandbox_server.domain.state import ENDED, State
from sandbox_server.domain.templates import name_at_provider
from sandbox_server.providers.protocol.errors import AnswerLost, SandboxGone
from sandbox_server.providers.protocol.provider import Access, NewSandbox, ProviderSandbox
from sandbox_server.providers.registry import Backend, Backends
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of
from sandbox_server.sandboxes.services.encrypted_columns import open_envs
from sandbox_server.vault import Vault

_FOUND_BY_METADATA = ENDED | {State.STARTING}


class ProviderCalls:
    """Requests to the provider of a row."""

    def __init__(self, backends: Backends, vault: Vault) -> None:
        self._backends = backends
        self._vault = vault

    def rules(self, row: Sandbox) -> Rules:
        return self._backends.rules(row.backend)

    def enter(self, row: Sandbox) -> None:
        """Count the current job against the provider's limit; raises `ProviderSaturated`."""
        self._client(row).enter()

    async def find(self, row: Sandbox) -> ProviderSandbox | None:
        """Find the row's sandbox; duplicates are killed."""
        if row.backend is None:
            return None
        backend = self._client(row)
        if row.backend_sandbox_id is None or row.state in _FOUND_BY_METADATA:
            return await _keep_one(backend, await backend.find(row.id), row.backend_sandbox_id)
        try:
            return await backend.info(row.backend_sandbox_id)
        except SandboxGone:
            return None

    async def create(self, observed: Observation) -> Access:
        backend = self._client(observed.row)
        access = await backend.create(self._new_sandbox(observed.row))
        if observed.maybe_requested:
            # A repeated request returns what the first one created, even if that was killed since.
            try:
                await backend.info(access.provider_id)
            except BackendRefused as error:  # of the query, not of the create
                raise AnswerLost(backend.name, error.reason) from None
        return access

    async def connect(self, observed: Observation) -> Access:
        timeout = self.rules(observed.row).provider_timeout
        return await self._client(observed.row).connect(_provider_id(observed), timeout=timeout)

    async def pause(self, observed: Observation) -> None:
        await self._client(observed.row).pause(_provider_id(observed))

    async def extend(self, observed: Observation) -> None:
        rules = self.rules(observed.row)
        until = extend_provider(deadlines_of(observed.row), observed.now, rules=rules)
        assert until.provider_until is not None
        left = until.provider_until - observed.now
        await self._client(observed.row).set_timeout(_provider_id(observed), left)

    async def kill(self, observed: Observation) -> None:
        """Kill every sandbox with the row's id, whether or not the row names it."""
        backend, known = self._client(observed.row), observed.row.backend_sandbox_id
        found = {observed.found.id} if observed.found else set()
        if known is None and not found:
            found = {sandbox.id for sandbox in await backend.find(observed.row.id)}
        for provider_id in found | ({known} if known else set()):
            await backend.kill(provider_id)

    async def kill_late(self, row: Sandbox, access: Access) -> None:
        await self._client(row).kill(access.provider_id)

    def _new_sandbox(self, row: Sandbox) -> NewSandbox:
        network = dict(row.network)
        return NewSandbox(
            sandbox_id=row.id,
            tenant_id=row.tenant_id,
            template=name_at_provider(row.template_id) if row.template_id else row.template,
            timeout=self.rules(row).provider_timeout,
            envs=open_envs(self._vault, row.id, row.envs_sealed).get("envs", {}),
            allow_internet=network.pop("allow_internet", None),
            network=network or None,
            volumes=row.volumes,
            lifetime=row.timeout,
        )

    def _client(self, row: Sandbox) -> Backend:
        assert row.backend is not None
        return self._backends[row.backend]


async def _keep_one(
    backend: Backend, found: Iterable[ProviderSandbox], known_id: str | None
) -> ProviderSandbox | None:
    """Keep the sandbox that the row names, or else the oldest."""
    ours = sorted(
        found, key=lambda sandbox: (sandbox.id != known_id, sandbox.started_at, sandbox.id)
    )
    for other in ours[1:]:
        await backend.kill(other.id)
    return ours[0] if ours else None


def _provider_id(observed: Observation) -> str:
    if observed.row.backend_sandbox_id is not None:
        return observed.row.backend_sandbox_id
    assert observed.found is not None
    return observed.found.id
