from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from fastapi import Response

from sandbox_client.models import (
    MetricRead,
    PortUrls,
    QueuePlace,
    Resources,
    SandboxCheckout,
    SandboxRead,
    ServicesRead,
    Urls,
)
from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.due import idle_pause_at, waits_for_slot
from sandbox_server.domain.errors import InvalidTransition, NotReady
from sandbox_server.domain.service_ports import CODE_SERVER_PORT
from sandbox_server.domain.state import ENDED, State, serves
from sandbox_server.http.waiting import answer_pending
from sandbox_server.providers.protocol.provider import Usage
from sandbox_server.providers.registry import Backends
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.queue.view import QueueView, describe_queues
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository, deadlines_of
from sandbox_server.sandboxes.services.encrypted_columns import open_tools_token
from sandbox_server.sandboxes.services.settings import password_of
from sandbox_server.sandboxes.waiting import ASK_AGAIN
from sandbox_server.vault import Vault


class ServiceViews(Protocol):
    """The recorded health of services in sandboxes."""

    def view(self, row: Sandbox) -> ServicesRead | None: ...

    async def refresh(self, row: Sandbox) -> None: ...


class BrowserUrls(Protocol):
    """The URLs of a sandbox's browser."""

    @property
    def cdp_url(self) -> str: ...

    @property
    def webdriver_url(self) -> str: ...

    @property
    def live_url(self) -> str: ...


class BrowserViews(Protocol):
    """Builds URLs of browsers."""

    def view(self, row: Sandbox, caller: Caller) -> BrowserUrls | None: ...


class SandboxViews:
    """Converts rows of sandboxes into what the API returns."""

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        public_address: PublicAddress,
        services: ServiceViews,
        browsers: BrowserViews,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._vault = vault
        self._public = public_address
        self._services = services
        self._browsers = browsers

    async def view(self, row: Sandbox, caller: Caller) -> SandboxRead:
        [view] = await self.view_all([row], caller)
        return view

    async def view_fresh(self, row: Sandbox, caller: Caller) -> SandboxRead:
        """Ask the sandbox's services for their health first, if they answer at once."""
        await self._services.refresh(row)
        return await self.view(row, caller)

    async def view_all(self, rows: Sequence[Sandbox], caller: Caller) -> list[SandboxRead]:
        """Convert rows; the database is queried only if some are queued or have a repository."""
        positions: Mapping[str, QueueView] = {}
        names: Mapping[str, str] = {}
        if any(waits_for_slot(deadlines_of(row)) or row.checkout for row in rows):
            async with without_transaction(self._sessions) as session:
                positions = await describe_queues(session, rows)
                names = await SandboxRepository(session).names_of_repositories(rows)
        return [self._view(row, caller, positions.get(row.id), names) for row in rows]

    def view_urls(self, row: Sandbox, caller: Caller) -> Urls | None:
        """List the URLs of a sandbox's servers while the sandbox exists."""
        if not self._has_started(row):
            return None
        url = partial(self._public.url, row.id)
        return Urls(
            mcp=f"{self._public.api_url}/v1/sandboxes/{row.id}/mcp/",
            code_server=url(CODE_SERVER_PORT),
            code_server_password=self._password(row, caller),
            agent=f"{self._public.websocket_url}/v1/sandboxes/{row.id}/agent/socket",
            ports=url("{port}"),
        )

    def view_port(self, row: Sandbox, port: int) -> PortUrls:
        """List the URLs of a port; they are unknown until the sandbox has started."""
        if row.state in ENDED:
            raise InvalidTransition(row.state, State.RUNNING)
        if not self._has_started(row):
            raise NotReady(row.state, retry_after=ASK_AGAIN)
        return PortUrls(
            port=port,
            url=self._public.url(row.id, port),
            path_url=self._public.path_url(row.id, port),
        )

    def _has_started(self, row: Sandbox) -> bool:
        exists = row.access_sealed is not None and row.state not in ENDED
        return exists and row.backend in self._backends

    def _password(self, row: Sandbox, caller: Caller) -> str | None:
        """Give the password to callers that may read the file it is in; without access to the port it is of no use."""
        may_know = caller.may(Scope.SANDBOXES) and row.has_services
        if not may_know or row.tools_token_sealed is None:
            return None
        return password_of(open_tools_token(self._vault, row.id, row.tools_token_sealed))

    def _view(
        self,
        row: Sandbox,
        caller: Caller,
        position: QueueView | None,
        names: Mapping[str, str],
    ) -> SandboxRead:
        browser = self._browsers.view(row, caller) if self._has_started(row) else None
        return SandboxRead(
            id=row.id,
            state=row.state,
            state_reason=row.state_reason,
            target=row.target,
            template=row.template,
            capabilities=sorted(row.capabilities),
            template_note=row.template_note,
            backend=row.backend,
            agent_type=row.agent_type,
            user_id=row.user_id,
            session_id=row.session_id,
            metadata=row.labels,
            resources=Resources.model_validate(row.resources),
            urls=self.view_urls(row, caller),
            created_at=row.created_at,
            started_at=row.started_at,
            last_activity_at=row.last_activity_at,
            idle_pause_at=idle_pause_at(deadlines_of(row)),
            awake_until=row.awake_until,
            expires_at=row.expires_at,
            remaining_s=_seconds(row.remaining),
            retain_until=row.retain_until,
            silent_since=row.silent_since,
            ended_at=row.ended_at,
            timeout_s=row.timeout.total_seconds(),
            on_timeout=row.on_timeout,
            idle_timeout_s=_seconds(row.idle_timeout),
            auto_resume=row.auto_resume,
            priority=row.priority,
            queue=None if position is None else _view_position(position),
            services=self._services.view(row),
            repository=None if row.checkout is None else _view_checkout(row.checkout, names),
            cdp_url=browser and browser.cdp_url,
            webdriver_url=browser and browser.webdriver_url,
            live_url=browser and browser.live_url,
        )


def view_usage(usage: Usage) -> MetricRead:
    return MetricRead.model_validate(usage, from_attributes=True)


def _view_position(position: QueueView) -> QueuePlace:
    return QueuePlace(
        position=position.position, reason=position.reason, estimate_s=_seconds(position.estimate)
    )


def _view_checkout(checkout: Mapping[str, Any], names: Mapping[str, str]) -> SandboxCheckout:
    repository_id = checkout["repository_id"]
    return SandboxCheckout(
        id=repository_id,
        name=names.get(repository_id, ""),
        ref=checkout["ref"],
        branch=checkout["branch"],
        push=checkout["push"],
        directory=checkout["directory"],
        state=checkout["state"],
        reason=checkout.get("reason"),
        commit=checkout.get("commit"),
    )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def set_status(response: Response, row: Sandbox) -> None:
    """Answer 202 while a sandbox has not reached its target."""
    if not serves(row.state, row.target):
        answer_pending(response)
