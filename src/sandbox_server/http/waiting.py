import asyncio
from datetime import timedelta
from typing import Annotated

from fastapi import Query, Response

_RETRY_AFTER_S = 2

Wait = Annotated[
    float,
    Query(
        ge=0,
        le=300,
        allow_inf_nan=False,
        description="For how many seconds to wait until it is as wanted, before the answer is 202.",
    ),
]
WaitForEnd = Annotated[
    float,
    Query(
        ge=0,
        le=300,
        allow_inf_nan=False,
        description="For how many seconds to wait until it has ended, before the answer is 202.",
    ),
]


class WaitBudget:
    """How long a caller waits, through all that it waits for."""

    def __init__(self, seconds: float) -> None:
        self._over = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> timedelta:
        return timedelta(seconds=max(0, self._over - asyncio.get_running_loop().time()))


def answer_pending(response: Response) -> None:
    """Answer 202: the request was accepted and its result is not there yet."""
    response.status_code = 202
    response.headers["Retry-After"] = str(_RETRY_AFTER_S)
