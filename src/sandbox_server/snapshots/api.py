from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Response

from sandbox_client.models import Page, SnapshotCreate, SnapshotRead, SnapshotState
from sandbox_server.db.models import Snapshot
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import Operator, Reader, SandboxIdPath, SnapshotIdPath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.snapshots.service import SnapshotService

SnapshotBody = Annotated[SnapshotCreate, Body(default_factory=SnapshotCreate)]
SnapshotsDep = Annotated[SnapshotService, depends_on(SnapshotService)]

router = APIRouter(route_class=JsonRoute, prefix="/v1", tags=["snapshots"])


@router.post(
    "/sandboxes/{sandbox_id}/snapshots", status_code=201, responses={202: {"model": SnapshotRead}}
)
@may_fail_with(
    errors.InvalidTransition, errors.NotReady, errors.SnapshotFailed, errors.SnapshotNotFound
)
async def create_snapshot(
    sandbox_id: SandboxIdPath,
    body: SnapshotBody,
    idempotency: IdempotencyDep,
    response: Response,
    caller: Operator,
    snapshots: SnapshotsDep,
) -> SnapshotRead:
    """Take a snapshot of a sandbox. Its id can be used as a template. 202: it is being taken."""
    row = await snapshots.create(
        caller,
        sandbox_id,
        name=body.name,
        idempotency=idempotency.of(body),
    )
    snapshot = _view(row)
    if snapshot.state is SnapshotState.CREATING:
        response.status_code = 202
    return snapshot


@router.get("/sandboxes/{sandbox_id}/snapshots")
async def list_sandbox_snapshots(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    snapshots: SnapshotsDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[SnapshotRead]:
    """List the snapshots of a sandbox, newest first. They outlive the sandbox, and so does this list."""
    rows = await snapshots.list_page(
        caller, sandbox_id=sandbox_id, limit=limit + 1, before=read_id(cursor)
    )
    return _page(rows, limit)


@router.get("/snapshots")
async def list_snapshots(
    caller: Reader,
    snapshots: SnapshotsDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[SnapshotRead]:
    """List all snapshots, newest first."""
    rows = await snapshots.list_page(
        caller, sandbox_id=None, limit=limit + 1, before=read_id(cursor)
    )
    return _page(rows, limit)


@router.get("/snapshots/{snapshot_id}")
async def get_snapshot(
    snapshot_id: SnapshotIdPath, caller: Reader, snapshots: SnapshotsDep
) -> SnapshotRead:
    """Get a snapshot and its state."""
    return _view(await snapshots.get(caller, snapshot_id))


@router.delete("/snapshots/{snapshot_id}", status_code=204)
async def delete_snapshot(
    snapshot_id: SnapshotIdPath, caller: Operator, snapshots: SnapshotsDep
) -> None:
    """Delete a snapshot. Its files are removed when no sandbox created from it is left."""
    await snapshots.delete(caller, snapshot_id)


def _view(row: Snapshot) -> SnapshotRead:
    return SnapshotRead.model_validate(row, from_attributes=True)


def _page(rows: Sequence[Snapshot], limit: int) -> Page[SnapshotRead]:
    items = [_view(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)
