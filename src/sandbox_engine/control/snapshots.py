from typing import Annotated, Self

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field, StrictBool, StrictInt

from sandbox_engine.control.deps import (
    DomainDep,
    ForksDep,
    SandboxId,
    SnapshotsDep,
    check_api_key,
)
from sandbox_engine.control.errors import STATUS
from sandbox_engine.control.models.sandboxes import DEFAULT_TIMEOUT_V1_S, Sandbox
from sandbox_engine.control.models.wire import WireModel, seconds
from sandbox_engine.control.pagination import page
from sandbox_engine.records.snapshot import SnapshotRecord
from sandbox_engine.system.errors import EngineError

router = APIRouter(tags=["snapshots"], dependencies=[Depends(check_api_key)])


async def add_snapshot_mode_header(response: Response) -> None:
    """Tell clients that snapshots hold files only: E2B also keeps memory and processes."""
    response.headers["X-Snapshot-Mode"] = "filesystem"


class SnapshotBody(WireModel):
    name: Annotated[str, Field(max_length=257)] | None = None
    memory: StrictBool = True


class ForkBody(WireModel):
    timeout: StrictInt = DEFAULT_TIMEOUT_V1_S
    count: StrictInt = 1


class Snapshot(WireModel):
    """A snapshot; its ID works as a template."""

    snapshot_id: str = Field(alias="snapshotID")
    names: list[str]

    @classmethod
    def of(cls, record: SnapshotRecord) -> Self:
        return cls(snapshot_id=record.reference, names=[record.reference] if record.name else [])


class ForkError(WireModel):
    code: int
    message: str


class Fork(WireModel):
    """Result of one fork: a sandbox or an error."""

    sandbox: Sandbox | None = None
    error: ForkError | None = None


@router.post(
    "/sandboxes/{sandbox_id}/snapshots",
    status_code=201,
    dependencies=[Depends(add_snapshot_mode_header)],
)
async def take_snapshot(
    sandbox_id: SandboxId, snapshots: SnapshotsDep, body: SnapshotBody | None = None
) -> Snapshot:
    """Create a snapshot of a sandbox's files; processes are not included."""
    name = body.name if body else None
    return Snapshot.of(await snapshots.take(sandbox_id, name=name))


@router.post(
    "/sandboxes/{sandbox_id}/fork",
    status_code=201,
    response_model_exclude_none=True,
    dependencies=[Depends(add_snapshot_mode_header)],
)
async def fork_sandbox(
    sandbox_id: SandboxId, forks: ForksDep, domain: DomainDep, body: ForkBody | None = None
) -> list[Fork]:
    """Create sandboxes with the current files of a sandbox; processes are not included."""
    body = body or ForkBody()
    forked = await forks.fork(sandbox_id, count=body.count, timeout=seconds(body.timeout))
    return [
        Fork(error=ForkError(code=STATUS[type(one)], message=str(one)))
        if isinstance(one, EngineError)
        else Fork(sandbox=Sandbox.of(one, domain))
        for one in forked
    ]


@router.get("/snapshots")
async def list_snapshots(
    response: Response,
    snapshots: SnapshotsDep,
    sandbox_id: Annotated[str | None, Query(alias="sandboxID")] = None,
    name: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
    next_token: Annotated[str | None, Query(alias="nextToken")] = None,
) -> list[Snapshot]:
    """List snapshots, newest first, page by page."""
    found = snapshots.listed(sandbox_id=sandbox_id, name=name)
    shown, following = page(
        found, at=lambda record: record.created_at, limit=limit, token=next_token
    )
    if following is not None:
        response.headers["X-Next-Token"] = following
    return [Snapshot.of(record) for record in shown]
