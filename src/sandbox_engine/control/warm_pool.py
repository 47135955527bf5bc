from datetime import datetime
from typing import Self

from fastapi import APIRouter, Depends
from pydantic import Field

from sandbox_engine.control.deps import WarmPoolDep, check_api_key
from sandbox_engine.control.models.wire import WireModel
from sandbox_engine.sandboxes.warm_pool import PoolLevel

router = APIRouter(tags=["ready sandboxes"], dependencies=[Depends(check_api_key)])


class ReadySandboxes(WireModel):
    """Warm pool of one template."""

    template_id: str = Field(alias="templateID")
    alias: str
    ready: int
    wanted: int
    failures: int
    failure: str | None
    next_try: datetime | None

    @classmethod
    def of(cls, level: PoolLevel) -> Self:
        return cls(
            template_id=level.model.template,
            alias=level.model.template_name,
            ready=len(level.ready),
            wanted=level.wanted,
            failures=level.attempts.failures,
            failure=level.attempts.reason or None,
            next_try=level.attempts.next_try,
        )


@router.get("/ready-sandboxes")
async def list_ready_sandboxes(warm_pool: WarmPoolDep) -> list[ReadySandboxes]:
    """List the templates with a warm pool, and why pools are not full.

    After three failures in a row the pool is not refilled until a sandbox of the template starts or
    the template is rebuilt.
    """
    return [ReadySandboxes.of(level) for level in warm_pool.levels()]
