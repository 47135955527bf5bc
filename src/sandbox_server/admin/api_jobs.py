from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BeforeValidator

from sandbox_client.models import JobRead, JobState, Page
from sandbox_server.admin.overview import Overview
from sandbox_server.domain.errors import JobNotFound
from sandbox_server.domain.jobs import DeadJob
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import depends_on, find_admin
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_number

router = APIRouter(prefix="/v1/jobs", tags=["operations"], dependencies=[Depends(find_admin)])

_LARGEST_ID = 2**63 - 1
_LONGEST_ID = 19


def _parse_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID):
        raise JobNotFound(text)
    return min(int(text), _LARGEST_ID)


JobId = Annotated[int, BeforeValidator(_parse_id), may_fail_with(JobNotFound), Path()]

OverviewDep = Annotated[Overview, depends_on(Overview)]


@router.get("")
async def list_jobs(
    overview: OverviewDep,
    state: Annotated[JobState, Query()] = JobState.DEAD,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[JobRead]:
    """List dead jobs: jobs of which every attempt failed, each with its last error."""
    rows = await overview.list_dead_jobs(after=read_number(cursor) or 0, limit=limit + 1)
    items = [_view(row, state) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.post("/{job_id}/retry", status_code=204)
async def retry_job(job_id: JobId, overview: OverviewDep) -> None:
    """Retry a dead job now, with the full number of attempts."""
    await overview.retry_job(job_id)


def _view(row: DeadJob, state: JobState) -> JobRead:
    return JobRead(
        id=row.id,
        kind=row.kind,
        subject=row.subject,
        state=state,
        attempts=row.attempts,
        last_error=row.last_error,
        dead_at=row.dead_at,
    )
