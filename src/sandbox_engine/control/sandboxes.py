import hashlib
import re
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from sandbox_engine.control import sandbox_filters
from sandbox_engine.control.deps import (
    DomainDep,
    SandboxId,
    SandboxServiceDep,
    check_api_key,
)
from sandbox_engine.control.models.network import NetworkUpdate
from sandbox_engine.control.models.sandboxes import (
    ConnectBody,
    ListedSandbox,
    NewSandboxBody,
    NewSandboxBodyV1,
    PauseBody,
    RefreshBody,
    ResumeBody,
    Sandbox,
    SandboxDetail,
    TimeoutBody,
)
from sandbox_engine.control.models.wire import seconds
from sandbox_engine.control.pagination import page
from sandbox_engine.records.sandbox import IdempotencyRecord, State
from sandbox_engine.system.errors import InvalidRequest, NotImplementedHere

router = APIRouter(tags=["sandboxes"], dependencies=[Depends(check_api_key)])

_IDEMPOTENCY_KEY = re.compile(r"[a-z0-9-]{1,255}")


async def idempotency(
    request: Request,
    body: NewSandboxBody,
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> IdempotencyRecord | None:
    """Return the idempotency key with a digest of the request."""
    if idempotency_key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
        raise InvalidRequest(
            "Idempotency-Key must be 1 to 255 lowercase letters, digits or hyphens"
        )
    fingerprint = f"{request.method} {request.url.path} {body.model_dump_json()}"
    digest = hashlib.sha256(fingerprint.encode()).hexdigest()
    return IdempotencyRecord(key=idempotency_key, digest=digest)


IdempotencyDep = Annotated[IdempotencyRecord | None, Depends(idempotency)]


@router.post("/v2/sandboxes", status_code=201)
async def create_sandbox(
    body: NewSandboxBody, service: SandboxServiceDep, domain: DomainDep, key: IdempotencyDep
) -> Sandbox:
    """Create a sandbox; it is usable when the request returns."""
    reject_unsupported(body)
    return Sandbox.of(await service.create(body.to_request(), idempotency=key), domain)


@router.post("/sandboxes", status_code=201)
async def create_sandbox_v1(
    body: NewSandboxBodyV1, service: SandboxServiceDep, domain: DomainDep
) -> Sandbox:
    """Create a sandbox (older clients)."""
    reject_unsupported(body)
    return Sandbox.of(await service.create(body.to_request()), domain)


def reject_unsupported(body: NewSandboxBody) -> None:
    """Reject unsupported options instead of ignoring them."""
    if not body.auto_pause_memory and not body.auto_pause:
        raise InvalidRequest("autoPauseMemory=false only applies when autoPause is true.")
    if not body.auto_pause_memory and body.auto_resume is not None and body.auto_resume.enabled:
        raise InvalidRequest("autoPauseMemory=false cannot be combined with autoResume.")
    if body.iam:
        raise NotImplementedHere("Workload identity")


async def list_query(
    metadata: str | None = None,
    state: str | None = None,
    template: str | None = None,
    started_after: Annotated[datetime | None, Query(alias="startedAfter")] = None,
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
) -> sandbox_filters.Query:
    """Parse the filter and order of a sandbox list."""
    return sandbox_filters.Query(
        states=sandbox_filters.parse_states(state),
        metadata=sandbox_filters.parse_metadata(metadata),
        template=template,
        started_after=started_after and started_after.astimezone(),
        ascending=order == "asc",
    )


@router.get("/v2/sandboxes", response_model_exclude_none=True)
async def list_sandboxes(
    response: Response,
    service: SandboxServiceDep,
    query: Annotated[sandbox_filters.Query, Depends(list_query)],
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
    next_token: Annotated[str | None, Query(alias="nextToken")] = None,
) -> list[ListedSandbox]:
    """List running and paused sandboxes, newest first, page by page."""
    found = [record for record in service.sandboxes() if query.matches(record)]
    shown, following = page(
        found,
        at=lambda record: record.started_at,
        limit=limit,
        token=next_token,
        ascending=query.ascending,
    )
    if State.RUNNING in query.states:
        running = sum(record.state is State.RUNNING for record in found)
        response.headers["X-Total-Running"] = str(running)
    if following is not None:
        response.headers["X-Next-Token"] = following
    return [ListedSandbox.of(record) for record in shown]


@router.get("/sandboxes", response_model_exclude_none=True)
async def list_running_sandboxes(
    service: SandboxServiceDep, metadata: str | None = None
) -> list[ListedSandbox]:
    """List running sandboxes, newest first, without pages."""
    query = sandbox_filters.Query(
        states=frozenset((State.RUNNING,)), metadata=sandbox_filters.parse_metadata(metadata)
    )
    found = [record for record in service.sandboxes() if query.matches(record)]
    found.sort(key=lambda record: record.started_at, reverse=True)
    return [ListedSandbox.of(record) for record in found]


@router.get("/sandboxes/{sandbox_id}")
async def get_sandbox(
    sandbox_id: SandboxId, service: SandboxServiceDep, domain: DomainDep
) -> SandboxDetail:
    """Get the details of a sandbox."""
    return SandboxDetail.detail_of(service.get(sandbox_id), domain)


@router.delete("/sandboxes/{sandbox_id}", status_code=204)
async def kill_sandbox(sandbox_id: SandboxId, service: SandboxServiceDep) -> None:
    """Kill a sandbox and delete its files."""
    await service.kill(sandbox_id)


@router.post("/v2/sandboxes/{sandbox_id}/connect")
@router.post("/sandboxes/{sandbox_id}/connect")
async def connect_sandbox(
    sandbox_id: SandboxId,
    response: Response,
    service: SandboxServiceDep,
    domain: DomainDep,
    body: ConnectBody | None = None,
) -> Sandbox:
    """Connect to a sandbox: resume it if paused; never shortens its timeout."""
    body = body or ConnectBody()
    record, resumed = await service.connect(
        sandbox_id, seconds(body.timeout), keep_memory=body.memory
    )
    response.status_code = 201 if resumed else 200
    return Sandbox.of(record, domain)


@router.post("/sandboxes/{sandbox_id}/resume", status_code=201)
async def resume_sandbox(
    sandbox_id: SandboxId,
    service: SandboxServiceDep,
    domain: DomainDep,
    body: ResumeBody | None = None,
) -> Sandbox:
    """Resume a paused sandbox."""
    body = body or ResumeBody()
    timeout = seconds(body.timeout)
    return Sandbox.of(await service.resume(sandbox_id, timeout, keep_memory=body.memory), domain)


@router.post("/sandboxes/{sandbox_id}/pause", status_code=204)
async def pause_sandbox(
    sandbox_id: SandboxId, service: SandboxServiceDep, body: PauseBody | None = None
) -> None:
    """Pause a sandbox; keeps its files, and its memory by default."""
    await service.pause(sandbox_id, keep_memory=(body or PauseBody()).memory)


@router.post("/sandboxes/{sandbox_id}/timeout", status_code=204)
async def set_timeout(sandbox_id: SandboxId, body: TimeoutBody, service: SandboxServiceDep) -> None:
    """Set the timeout of a sandbox, counted from now."""
    await service.set_timeout(sandbox_id, seconds(body.timeout))


@router.post("/sandboxes/{sandbox_id}/refreshes", status_code=204)
async def refresh_sandbox(
    sandbox_id: SandboxId, service: SandboxServiceDep, body: RefreshBody | None = None
) -> None:
    """Keep a sandbox for at least this many seconds from now."""
    duration = (body or RefreshBody()).duration
    await service.refresh(sandbox_id, timedelta(seconds=duration))


@router.put("/sandboxes/{sandbox_id}/network", status_code=204)
async def update_network(
    sandbox_id: SandboxId, body: NetworkUpdate, service: SandboxServiceDep
) -> None:
    """Replace the egress policy of a running sandbox; cuts connections it forbids."""
    await service.update_network(
        sandbox_id, body.to_record(), allow_internet=body.allow_internet_access
    )
