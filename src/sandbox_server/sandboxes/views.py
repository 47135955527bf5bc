"""Rows as the API tells them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

from sandbox_client.models import (
    MetricRead,
    PortUrls,
    QueuePlace,
    Resources,
    SandboxRead,
    SnapshotRead,
    Urls,
)
from sandbox_server.db.models import Sandbox, Snapshot
from sandbox_server.db.session import without_transaction
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.due import idle_pause_at, waits_for_slot
from sandbox_server.domain.errors import InvalidTransition, NotReady
from sandbox_server.domain.state import ENDED, State
from sandbox_server.providers.protocol.provider import Usage
from sandbox_server.sandboxes.answers import ASK_AGAIN
from sandbox_server.sandboxes.queue.view import QueueView, describe_queues
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of
from sandbox_server.sandboxes.services.sealed import open_tools_token
from sandbox_server.sandboxes.services.settings import password_of
from sandbox_server.services import Services
from sandbox_server.tools.health_checks import CODE_SERVER_PORT
from sandbox_server.tools.views import view_services


async def view_sandbox(services: Services, row: Sandbox, caller: Caller) -> SandboxRead:
    [view] = await view_sandboxes(services, [row], caller)
    return view


async def view_sandboxes(
    services: Services, rows: Sequence[Sandbox], caller: Caller
) -> list[SandboxRead]:
    """Tell what sandboxes are; the database is asked for more only if some of them wait."""
    places: Mapping[str, QueueView] = {}
    if any(waits_for_slot(deadlines_of(row)) for row in rows):
        async with without_transaction(services.sessions) as session:
            places = await describe_queues(session, rows)
    return [_view(services, row, caller, places.get(row.id)) for row in rows]


def view_urls(services: Services, row: Sandbox, caller: Caller) -> Urls | None:
    """Tell where a sandbox's servers are reached, as long as there is a sandbox."""
    if not _has_started(services, row):
        return None
    public = services.public_address
    url = partial(public.url, row.id)
    return Urls(
        mcp=f"{public.api_url}/v1/sandboxes/{row.id}/mcp/",
        code_server=url(CODE_SERVER_PORT),
        code_server_password=_password(services, row, caller),
        agent=f"{public.websocket_url}/v1/sandboxes/{row.id}/agent/socket",
        ports=url("{port}"),
    )


def view_port(services: Services, row: Sandbox, port: int) -> PortUrls:
    """Tell where a port is reached; before a sandbox has started nobody knows."""
    if row.state in ENDED:
        raise InvalidTransition(row.state, State.RUNNING)
    if not _has_started(services, row):
        raise NotReady(row.state, retry_after=ASK_AGAIN)
    public = services.public_address
    return PortUrls(
        port=port,
        url=public.url(row.id, port),
        path_url=public.path_url(row.id, port),
    )


def _has_started(services: Services, row: Sandbox) -> bool:
    is_there = row.access_sealed is not None and row.state not in ENDED
    return is_there and row.backend in services.backends


def view_snapshot(row: Snapshot) -> SnapshotRead:
    return SnapshotRead.model_validate(row, from_attributes=True)


def view_usage(usage: Usage) -> MetricRead:
    return MetricRead.model_validate(usage, from_attributes=True)


def _view_place(place: QueueView) -> QueuePlace:
    return QueuePlace(
        position=place.position, reason=place.reason, estimate_s=_seconds(place.estimate)
    )


def _password(services: Services, row: Sandbox, caller: Caller) -> str | None:
    """Give it to those who may read the file that it is in; without access to the port it is of no use."""
    may_know = caller.may(Scope.SANDBOXES) and row.has_services
    if not may_know or row.tools_token_sealed is None:
        return None
    return password_of(open_tools_token(services.vault, row.id, row.tools_token_sealed))


def _view(services: Services, row: Sandbox, caller: Caller, place: QueueView | None) -> SandboxRead:
    return SandboxRead(
        id=row.id,
        state=row.state,
        state_reason=row.state_reason,
        target=row.target,
        template=row.template,
        template_note=row.template_note,
        backend=row.backend,
        agent_type=row.agent_type,
        user_id=row.user_id,
        session_id=row.session_id,
        metadata=row.labels,
        resources=Resources.model_validate(row.resources),
        urls=view_urls(services, row, caller),
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
        queue=None if place is None else _view_place(place),
        services=view_services(row, services.service_health.known(row)),
    )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
