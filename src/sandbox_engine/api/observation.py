from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from sandbox_engine.api.deps import EngineDep, SamplerDep, SandboxId, check_api_key
from sandbox_engine.api.models import LogEntryBody, LogLine, Logs, LogsV2, Metric
from sandbox_engine.engine import Engine
from sandbox_engine.errors import InvalidRequest
from sandbox_engine.metrics import Sampler
from sandbox_engine.records import LogEntry

router = APIRouter(tags=["observation"], dependencies=[Depends(check_api_key)])

_MOST_SANDBOXES = 100


@router.get("/sandboxes/metrics")
async def get_metrics_of_many(
    engine: EngineDep, sampler: SamplerDep, sandbox_ids: str
) -> dict[str, dict[str, Metric]]:
    """Get the latest measurement of each of several sandboxes."""
    ids = [one for one in sandbox_ids.split(",") if one]
    if len(ids) > _MOST_SANDBOXES:
        raise InvalidRequest(f"Too many sandboxes requested, maximum is {_MOST_SANDBOXES}")
    measured = {one: _metrics(engine, sampler, one) for one in ids}
    return {"sandboxes": {one: metrics[-1] for one, metrics in measured.items() if metrics}}


@router.get("/sandboxes/{sandbox_id}/metrics")
async def get_metrics(
    sandbox_id: SandboxId,
    engine: EngineDep,
    sampler: SamplerDep,
    start: Annotated[int | None, Query(ge=0)] = None,
    end: Annotated[int | None, Query(ge=0)] = None,
) -> list[Metric]:
    """Get CPU, memory and disk of a sandbox over its last hour, oldest first."""
    engine.get(sandbox_id)
    return [
        metric
        for metric in _metrics(engine, sampler, sandbox_id)
        if (start is None or metric.timestamp_unix >= start)
        and (end is None or metric.timestamp_unix <= end)
    ]


@router.get("/sandboxes/{sandbox_id}/logs")
async def get_logs(
    sandbox_id: SandboxId,
    engine: EngineDep,
    start: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=0, le=1000)] = 1000,
) -> Logs:
    """Tell what happened to a sandbox, oldest first; `start` is in milliseconds."""
    entries = _entries(engine, sandbox_id, since_ms=start)[:limit]
    return Logs(
        logs=[LogLine(timestamp=entry.at, line=entry.message) for entry in entries],
        log_entries=[LogEntryBody.of(entry) for entry in entries],
    )


@router.get("/v2/sandboxes/{sandbox_id}/logs")
async def get_logs_v2(
    sandbox_id: SandboxId,
    engine: EngineDep,
    cursor: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=0, le=1000)] = 1000,
) -> LogsV2:
    """Tell what happened to a sandbox, oldest first; `cursor` is in milliseconds."""
    entries = _entries(engine, sandbox_id, since_ms=cursor)[:limit]
    return LogsV2(logs=[LogEntryBody.of(entry) for entry in entries])


def _metrics(engine: Engine, sampler: Sampler, sandbox_id: str) -> list[Metric]:
    sandbox = engine.find_running(sandbox_id)
    return [Metric.of(one) for one in sampler.samples(sandbox)] if sandbox else []


def _entries(engine: Engine, sandbox_id: str, *, since_ms: int) -> list[LogEntry]:
    since = datetime.fromtimestamp(min(since_ms / 1000, 253_402_300_799), UTC)
    return [entry for entry in engine.get(sandbox_id).log if entry.at >= since]
