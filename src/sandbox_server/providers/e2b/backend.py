import contextlib
import logging
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import quote

from e2b import AsyncSandbox
from e2b.api.client.api.sandboxes import (
    delete_sandboxes_sandbox_id,
    get_sandboxes_sandbox_id_metrics,
    post_sandboxes_sandbox_id_pause,
    post_sandboxes_sandbox_id_snapshots,
    post_sandboxes_sandbox_id_timeout,
    post_v2_sandboxes,
    post_v_2_sandboxes_sandbox_id_connect,
)
from e2b.api.client.api.snapshots import get_snapshots
from e2b.api.client.api.templates import delete_templates_template_id
from e2b.api.client.models import (
    ConnectSandboxV2,
    Sandbox,
    SandboxMetric,
    SandboxPauseRequest,
    SandboxSnapshotRequest,
    SandboxTimeoutRequest,
    SnapshotInfo,
)
from e2b.api.client.types import UNSET, Response
from e2b.envd.api import ENVD_API_HEALTH_ROUTE

from sandbox_server.domain.errors import BackendError
from sandbox_server.domain.jobs import ProviderSaturated
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.e2b.connection import Connection
from sandbox_server.providers.e2b.failures import ErrorAnswer
from sandbox_server.providers.e2b.files import Files
from sandbox_server.providers.e2b.handles import Handles
from sandbox_server.providers.e2b.inside import Inside
from sandbox_server.providers.e2b.listing import read_all
from sandbox_server.providers.e2b.lookup import Lookup
from sandbox_server.providers.e2b.ports import Ports
from sandbox_server.providers.e2b.processes import Processes
from sandbox_server.providers.e2b.templates import ProviderTemplates
from sandbox_server.providers.e2b.transfers import Transfers
from sandbox_server.providers.e2b.working_directories import WorkingDirectories
from sandbox_server.providers.protocol.errors import (
    MetadataNotKept,
    PauseConflict,
    SandboxGone,
    SandboxNotRunning,
)
from sandbox_server.providers.protocol.limits import ProviderLimits
from sandbox_server.providers.protocol.provider import (
    Access,
    Endpoint,
    NewSandbox,
    PortAddress,
    PortRefusal,
    ProviderSandbox,
    ReportedState,
    Usage,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

QUESTION_LIMIT = timedelta(seconds=30)
WORK_LIMIT = timedelta(minutes=2)
"""For requests that start, stop or copy a sandbox."""

_HANDLES = 1000
_PAGE = 100
# Answers that mean that the requested state exists already.
_NOTHING: frozenset[int] = frozenset()
_CONFLICT = frozenset({HTTPStatus.CONFLICT})
_GONE = frozenset({HTTPStatus.NOT_FOUND})


class E2BBackend:
    """One provider that speaks E2B's protocol, with the calls that the lifecycle needs.

    Nothing is retried here; callers decide what an error means.
    """

    capabilities: frozenset[str] | None = None
    """The only capabilities that its sandboxes can have; None: those of their templates."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        installation_id: str,
        limits: ProviderLimits | None = None,
        question_limit: timedelta = QUESTION_LIMIT,
        work_limit: timedelta = WORK_LIMIT,
        handles: int = _HANDLES,
        page: int = _PAGE,
    ) -> None:
        self.name = endpoint.name
        self._ports = Ports(endpoint)
        self._public_traffic = endpoint.public_traffic
        self.installation_id = installation_id
        self._limits = limits or ProviderLimits(1)
        self._question_limit = question_limit
        self._work_limit = work_limit
        self._connection = Connection(endpoint)
        self._api = self._connection.api
        self._handles = Handles(endpoint, most=handles)
        self.templates = ProviderTemplates(self.name, self._api, self._ask, self._connection.put)
        self._lookup = Lookup(
            self.name, self._api, self._ask, installation_id=installation_id, page=page
        )
        self._page = page
        self._keeps_metadata = False

    def require(self, capability: str) -> None:
        """Do nothing: what its sandboxes can do depends on their templates."""

    def enter(self) -> None:
        """Count the current job against this provider's limit, before it commits an intermediate state."""
        self._limits.enter(self.name)

    async def create(self, wanted: NewSandbox) -> Access:
        """Create a sandbox; a repeated request returns the same one."""
        answer = await self._change(
            "create",
            post_v2_sandboxes.asyncio_detailed(
                client=self._api,
                body=wire.new_sandbox(
                    wanted,
                    installation_id=self.installation_id,
                    public_traffic=self._public_traffic,
                ),
                idempotency_key=wanted.sandbox_id,
            ),
        )
        access = wire.access(cast("Sandbox", answer.parsed))
        if not self._keeps_metadata:
            await self._require_metadata(access.provider_id)
        return access

    async def connect(self, provider_id: str, *, timeout: timedelta) -> Access:
        """Resume the sandbox if it is paused; its timeout is never shortened."""
        answer = await self._change(
            "connect",
            post_v_2_sandboxes_sandbox_id_connect.asyncio_detailed(
                provider_id,
                client=self._api,
                body=ConnectSandboxV2(timeout=wire.seconds(timeout)),
            ),
            of=provider_id,
        )
        return wire.access(cast("Sandbox", answer.parsed))

    async def pause(self, provider_id: str) -> None:
        """Pause the sandbox; idempotent."""
        request = post_sandboxes_sandbox_id_pause.asyncio_detailed(
            provider_id, client=self._api, body=SandboxPauseRequest()
        )
        try:
            await self._change("pause", request, of=provider_id, accepted=_CONFLICT)
        except SandboxNotRunning:
            return
        except ErrorAnswer as answer:
            conflict = answer
        else:
            return
        # A 409 may mean: paused already, in another transition, or cannot be paused.
        if (await self._read(provider_id)).state is ReportedState.RUNNING:
            raise PauseConflict(self.name, f"answered 409: {conflict.message}")

    async def kill(self, provider_id: str) -> None:
        """Delete the sandbox; idempotent."""
        self._handles.forget(provider_id)
        request = delete_sandboxes_sandbox_id.asyncio_detailed(provider_id, client=self._api)
        with contextlib.suppress(SandboxGone):
            await self._change("kill", request, of=provider_id)

    async def set_timeout(self, provider_id: str, timeout: timedelta) -> None:
        """Set the provider's timeout of a running sandbox, from now."""
        await self._ask(
            "set-timeout",
            post_sandboxes_sandbox_id_timeout.asyncio_detailed(
                provider_id,
                client=self._api,
                body=SandboxTimeoutRequest(timeout=wire.seconds(timeout)),
            ),
            of=provider_id,
            changes=True,
        )

    async def info(self, provider_id: str, *, limit: timedelta | None = None) -> ProviderSandbox:
        """Get one sandbox of this installation."""
        found = await self._read(provider_id, limit=limit)
        if found.installation_id is None:
            self._keeps_metadata = (
                False  # for example after an upgrade; the next create checks again
            )
            raise MetadataNotKept(self.name, provider_id)
        return found

    async def list_all(self, *, limit: timedelta | None = None) -> Sequence[ProviderSandbox]:
        """List the sandboxes of this installation, running and paused; `limit` is per page."""
        return await self._lookup.find({}, limit=limit)

    async def find(self, sandbox_id: str) -> Sequence[ProviderSandbox]:
        """Find the sandboxes with our id, oldest first: usually one, more after a lost answer."""
        found = await self._lookup.find({wire.SANDBOX: sandbox_id})
        return sorted(found, key=lambda sandbox: (sandbox.started_at, sandbox.id))

    async def metrics(self, provider_id: str) -> Sequence[Usage]:
        """List the sandbox's resource usage, as far back as the provider has data."""
        answer = await self._ask(
            "metrics",
            get_sandboxes_sandbox_id_metrics.asyncio_detailed(provider_id, client=self._api),
            of=provider_id,
        )
        return [wire.usage(metric) for metric in cast("list[SandboxMetric]", answer.parsed)]

    async def snapshot(self, provider_id: str, *, name: str | None = None) -> str:
        """Take a snapshot; returns its id, which is a template."""
        answer = await self._change(
            "snapshot",
            post_sandboxes_sandbox_id_snapshots.asyncio_detailed(
                provider_id,
                client=self._api,
                body=SandboxSnapshotRequest(name=name or UNSET),
            ),
            of=provider_id,
        )
        return cast("SnapshotInfo", answer.parsed).snapshot_id

    async def find_snapshot(self, name: str) -> str | None:
        """Find a snapshot by name."""
        # Filtered here too: some providers ignore the name and list all snapshots.
        found = await self._list_snapshots(name)
        return next(
            (snapshot.snapshot_id for snapshot in found if wire.is_named(snapshot, name)), None
        )

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot; idempotent."""
        request = delete_templates_template_id.asyncio_detailed(
            quote(snapshot_id, safe=""), client=self._api
        )
        try:
            await self._change("delete-snapshot", request, accepted=_GONE)
        except ErrorAnswer as answer:
            missing = answer
        else:
            return
        if missing.names(snapshot_id):
            return
        if any(snapshot.snapshot_id == snapshot_id for snapshot in await self._list_snapshots()):
            raise missing.lacks_call(self.name)

    async def _list_snapshots(self, name: str | None = None) -> list[SnapshotInfo]:
        async def read_page(token: str) -> Response[list[SnapshotInfo]]:
            request = get_snapshots.asyncio_detailed(
                client=self._api, name=name or UNSET, limit=self._page, next_token=token or UNSET
            )
            return cast("Response[list[SnapshotInfo]]", await self._ask("find-snapshot", request))

        return await read_all(self.name, read_page)

    def handle(self, access: Access) -> AsyncSandbox:
        """Return the SDK's object for work inside the sandbox, without a request."""
        return self._handles.get(access)

    def inside(self, access: Access) -> Inside:
        """Run commands and access files in the sandbox, with the server's own errors."""
        return Inside(
            self.name,
            self.handle(access),
            processes=self.processes(access),
            directories=self.directories(access),
        )

    def directories(self, access: Access) -> WorkingDirectories:
        """Resolve relative paths in the sandbox."""
        return self._handles.directories(access)

    def processes(self, access: Access) -> Processes:
        """Start and follow processes in the sandbox."""
        return self._handles.processes(access)

    def files(self, access: Access, *, user: str | None = None) -> Files:
        """Inspect, watch and move files in the sandbox as one of its users."""
        return Files(
            self.name,
            self.handle(access),
            envd_version=access.envd_version,
            user=user,
            directories=self.directories(access),
        )

    def transfers(self, access: Access, *, user: str | None = None) -> Transfers:
        """Read and write files in the sandbox as streams, as one of its users."""
        return Transfers(
            self.name,
            self.handle(access),
            envd_version=access.envd_version,
            user=user,
            directories=self.directories(access),
        )

    def port_address(self, access: Access, port: int) -> PortAddress:
        """Build the address of a server in the sandbox, without a request."""
        return self._ports.address(access, port)

    def find_refusal(self, address: PortAddress, status: int, body: bytes) -> PortRefusal | None:
        """Whether an answer is from the provider, not from the server in the sandbox."""
        return self._ports.find_refusal(address, status, body)

    def host(self, access: Access, port: int) -> str:
        """Build the public host name of a port of the sandbox."""
        return self.handle(access).get_host(port)

    async def is_answering(self, access: Access, *, limit: timedelta | None = None) -> bool:
        """Check the health of the sandbox itself; a timeout counts as False."""
        url, headers = self._handles.address(access)
        return await self._connection.is_answering(
            f"{url}{ENVD_API_HEALTH_ROUTE}",
            headers=headers,
            limit=limit or self._question_limit,
        )

    async def close(self) -> None:
        await self._handles.close()
        await self._connection.close()

    async def _read(self, provider_id: str, *, limit: timedelta | None = None) -> ProviderSandbox:
        try:
            return await self._lookup.read(provider_id, limit=limit)
        except SandboxGone:
            self._handles.forget(provider_id)
            raise

    async def _require_metadata(self, provider_id: str) -> None:
        """Reject a provider that does not keep metadata, and kill the sandbox that it has just created.

        Without metadata its sandboxes could not be found again: they would count as gone and keep running.
        """
        try:
            found = await self._read(provider_id)
        except BackendError:
            return  # still unknown; the next create checks again
        if found.installation_id is not None and found.sandbox_id is not None:
            self._keeps_metadata = True
            return
        try:
            await self.kill(provider_id)
        except BackendError as error:
            log.error(
                "sandbox left behind backend=%s id=%s error=%s", self.name, provider_id, error
            )
        raise MetadataNotKept(self.name, provider_id)

    async def _change(
        self,
        call: str,
        request: Coroutine[Any, Any, Response[T]],
        *,
        of: str | None = None,
        accepted: frozenset[int] = _NOTHING,
    ) -> Response[T]:
        return await self._ask(
            call, request, of=of, accepted=accepted, changes=True, limit=self._work_limit
        )

    async def _ask(
        self,
        call: str,
        request: Coroutine[Any, Any, Response[T]],
        *,
        of: str | None = None,
        accepted: frozenset[int] = _NOTHING,
        changes: bool = False,
        limit: timedelta | None = None,
    ) -> Response[T]:
        try:
            self.enter()
        except ProviderSaturated:
            request.close()
            raise
        own = accepted | _GONE if of else accepted
        try:
            return await self._connection.ask(
                call, request, limit=limit or self._question_limit, changes=changes, accepted=own
            )
        except ErrorAnswer as answer:
            if of is None or answer.status != HTTPStatus.NOT_FOUND:
                raise
            missing = answer
        failure = await self._lookup.explain_missing(call, of, missing)
        if isinstance(failure, SandboxGone):
            self._handles.forget(of)
        raise failure
