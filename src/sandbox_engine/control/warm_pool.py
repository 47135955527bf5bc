from datetime import datetime
from typing import Self

from fastapi import APIRouter, Depends
from pydantic import Field

from sandbox_engine.control.deps import ReserveDep, check_api_key
from sandbox_engine.control.models.wire import WireModel
from sandbox_engine.sandboxes.warm_pool import Stock

router = APIRouter(tags=["ready sandboxes"], dependencies=[Depends(check_api_key)])


class ReadySandboxes(WireModel):
    """The ready sandboxes of one template."""

    template_id: str = Field(alias="templateID")
    alias: str
    ready: int
    wanted: int
    failures: int
    failure: str | None
    next_try: datetime | None

    @classmethod
    def of(cls, stock: Stock) -> Self:
        return cls(
            template_id=stock.model.template,
            alias=stock.model.template_name,
            ready=len(stock.ready),
            wanted=stock.wanted,
            failures=stock.attempts.failures,
            failure=stock.attempts.reason or None,
            next_try=stock.attempts.next_try,
        )


@router.get("/ready-sandboxes")
async def list_ready_sandboxes(reserve: ReserveDep) -> list[ReadySandboxes]:
    """Tell which templates sandboxes are kept ready of, and why where there are none.

    After three failures in a row nothing more is tried until a create of that template succeeds, or
    the template is built anew.
    """
    return [ReadySandboxes.of(stock) for stock in reserve.stocks()]
