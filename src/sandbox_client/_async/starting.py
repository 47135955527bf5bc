from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from sandbox_client import models
from sandbox_client._async.transport import AsyncTransport
from sandbox_client._async.waiting import LONGEST_WAIT_S
from sandbox_client.errors import NotReady
from sandbox_client.protocol.calls import call, create

Model = TypeVar("Model", bound=BaseModel)


async def begin(
    transport: AsyncTransport, sandbox_path: str, what: str, body: BaseModel, kind: type[Model]
) -> Model:
    """Start something to be followed from its first byte; resume a paused sandbox before."""
    request = create(f"{sandbox_path}/{what}", body, wait=0)
    try:
        return await transport.fetch(kind, request)
    except NotReady:
        resume = call("POST", f"{sandbox_path}/resume", may_repeat=True, wait=LONGEST_WAIT_S)
        await transport.fetch(models.SandboxRead, resume)
    return await transport.fetch(kind, request)
