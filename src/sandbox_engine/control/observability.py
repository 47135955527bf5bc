from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from sandbox_engine.control.deps import (
    SamplerDep,
    SandboxId,
    SandboxServiceDep,
    check_api_key,
)
from sandbox_engine.control.models.sandboxes import (
    LogEntryBody,
    LogLine,
    Logs,
    LogsV2,
    Metric,
)
from sandbox_engine.records.journal import Entry, Level
from sandbox_engine.system.errors import InvalidRequest

router = APIRouter(tags=["observation"], dependencies=[Depends(check_api_key)])

_MOST_SANDBOXES = 100
_LAST_INSTANT = 253_402_300_799


class Direction(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"


@router.get("/sandboxes/metrics")
async def get_metrics_of_many(
    service: SandboxServiceDep, sandbox_ids: str
) -> dict[str, dict[str, Metric]]:
    """Get the latest metrics of several sandboxes."""
    ids = [sandbox_id for sandbox_id in sandbox_ids.split(",") if sandbox_id]
    if len(ids) > _MOST_SANDBOXES:
        raise InvalidRequest(f"Too many sandboxes requested, maximum is {_MOST_SANDBOXES}")
    running = [
        sandbox for sandbox_id in ids if (sandbox := service.find_running(sandbox_id)) is not None
    ]
    return {"sandboxes": {sandbox.id: Metric.of(sandbox.usage()) for sandbox in running}}


@router.get("/sandboxes/{sandbox_id}/metrics")
async def get_metrics(
    sandbox_id: SandboxId,
    service: SandboxServiceDep,
    sampler: SamplerDep,
    start: Annotated[int | None, Query(ge=0)] = None,
    end: Annotated[int | None, Query(ge=0)] = None,
) -> list[Metric]:
    """Get CPU, memory and disk usage of a sandbox over the last seven days, oldest first."""
    since, until = start or 0, end or _LAST_INSTANT
    samples = sampler.samples(service.get(sandbox_id).id)
    return [Metric.of(sample) for sample in samples if since <= int(sample.at) <= until]


@router.get("/sandboxes/{sandbox_id}/logs")
async def get_logs(
    sandbox_id: SandboxId,
    service: SandboxServiceDep,
    start: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=0, le=1000)] = 1000,
) -> Logs:
    """Get the log of a sandbox, oldest first; `start` is in milliseconds."""
    since = _instant(start)
    shown = [entry for entry in service.journal(sandbox_id).entries() if entry.at >= since][:limit]
    return Logs(
        logs=[LogLine.of(entry) for entry in shown],
        log_entries=[LogEntryBody.of(entry) for entry in shown],
    )


async def log_filter(
    level: Level = Level.DEBUG, search: Annotated[str, Query(max_length=256)] = ""
) -> Callable[[Entry], bool]:
    """Build a filter of log entries."""
    return lambda entry: level.includes(entry.level) and search in entry.message


@router.get("/v2/sandboxes/{sandbox_id}/logs")
async def get_logs_v2(
    sandbox_id: SandboxId,
    service: SandboxServiceDep,
    wanted: Annotated[Callable[[Entry], bool], Depends(log_filter)],
    cursor: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=0, le=1000)] = 1000,
    direction: Direction = Direction.FORWARD,
) -> LogsV2:
    """Get the log of a sandbox from `cursor` (milliseconds) on, or backwards from it."""
    entries = [entry for entry in service.journal(sandbox_id).entries() if wanted(entry)]
    if direction is Direction.FORWARD:
        since = _instant(cursor or 0)
        found = (entry for entry in entries if entry.at >= since)
    else:
        until = _instant(_LAST_INSTANT * 1000 if cursor is None else cursor)
        found = (entry for entry in reversed(entries) if entry.at <= until)
    return LogsV2(logs=[LogEntryBody.of(entry) for entry in islice(found, limit)])


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(min(milliseconds / 1000, _LAST_INSTANT), UTC)
