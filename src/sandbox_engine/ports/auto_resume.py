import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import Scope

from sandbox_engine.envd.protocol.access import (
    AccessDenied,
    InvalidExpiration,
    check_signature,
    is_token,
)
from sandbox_engine.envd.protocol.query import signed_request
from sandbox_engine.http.error_pages import (
    Refusal,
    machine_full,
    resume_refused,
    sandbox_not_found,
)
from sandbox_engine.http.routing import ENVD_PORT
from sandbox_engine.machine.capacity import MachineFull
from sandbox_engine.ports.port_access import find_refusal
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.sandboxes.service import Engine
from sandbox_engine.system.errors import EngineError
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)


class Waking:
    """Finds the sandbox that traffic is for, and resumes it if it is paused and wants that."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def find(self, sandbox_id: str, port: int, scope: Scope) -> Sandbox | Refusal:
        """Get the sandbox, running, or what to answer instead."""
        running = self._engine.find_running(sandbox_id)
        if running is not None and running.record.auto_resume:
            # Who comes in the middle of a pause would be cut off by it, and wakes it afterwards.
            await running.gate.wait_open()
            running = self._engine.find_running(sandbox_id)
        if running is not None:
            return running
        record = self._engine.find_wakeable(sandbox_id)
        if record is None:
            return sandbox_not_found(sandbox_id)
        return _refusal(record, port, scope) or await self._woken(sandbox_id)

    async def _woken(self, sandbox_id: str) -> Sandbox | Refusal:
        try:
            await self._wake(sandbox_id)
        except MachineFull as error:
            return machine_full(sandbox_id, str(error))
        except (EngineError, OSError) as error:
            log.error("waking failed", id=sandbox_id, error=error)
        return self._engine.find_running(sandbox_id) or sandbox_not_found(sandbox_id)

    async def _wake(self, sandbox_id: str) -> None:
        """Resume it once for all who come at the same time; a failure is the same for all too."""
        task = self._under_way.get(sandbox_id)
        if task is None:
            task = asyncio.create_task(self._engine.wake(sandbox_id))
            self._under_way[sandbox_id] = task
            task.add_done_callback(lambda _: self._under_way.pop(sandbox_id))
        await asyncio.shield(task)


def _refusal(record: SandboxRecord, port: int, scope: Scope) -> Refusal | None:
    """Judge the request by what is known of the sandbox while it sleeps."""
    if port != ENVD_PORT:
        return find_refusal(record, scope["headers"])
    if _only_asks(scope):
        return sandbox_not_found(record.id)
    return None if _may_enter(record, scope) else resume_refused(record.id)


def _only_asks(scope: Scope) -> bool:
    """Tell a question about the sandbox from the use of it.

    SDKs ask for its health whenever a pause has cut one of their streams, and a browser asks
    whether a page may call it.
    """
    return bool(scope["method"] == "OPTIONS" or scope["path"] == "/health")


def _may_enter(record: SandboxRecord, scope: Scope) -> bool:
    given = Headers(scope=scope).get("x-access-token")
    if given is not None:
        return is_token(record.access_token, given)
    if scope["path"] == "/files" and scope["method"] in ("GET", "POST"):
        with suppress(AccessDenied, InvalidExpiration):
            check_signature(signed_request(scope), record.access_token)
            return True
    return False
