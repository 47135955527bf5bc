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
        description="Maximum seconds to wait for the requested state before answering 202.",
    ),
]
WaitForEnd = Annotated[
    float,
    Query(
        ge=0,
        le=300,
        allow_inf_nan=False,
        description="Maximum seconds to wait for the end before answering 202.",
    ),
]


class WaitBudget:
    """The time that a request may still wait, over several waits."""

    def __init__(self, seconds: float) -> None:
        self._over = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> timedelta:
        return timedelta(seconds=max(0, self._over - asyncio.get_running_loop().time()))


def answer_pending(response: Response) -> None:
    """Answer 202: the request was accepted, its result is not available yet."""
    response.status_code = 202
    response.headers["Retry-After"] = str(_RETRY_AFTER_S)
