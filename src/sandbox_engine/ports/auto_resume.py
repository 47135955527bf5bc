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
    ErrorPage,
    machine_full,
    resume_refused,
    sandbox_not_found,
)
from sandbox_engine.http.routing import ENVD_PORT
from sandbox_engine.machine.capacity import MachineFull
from sandbox_engine.ports.port_access import find_rejection
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.sandboxes.service import SandboxService
from sandbox_engine.system.errors import EngineError
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)


class AutoResume:
    """Finds the sandbox for a request, and resumes it if it is paused with auto-resume."""

    def __init__(self, service: SandboxService) -> None:
        self._service = service
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def find(self, sandbox_id: str, port: int, scope: Scope) -> Sandbox | ErrorPage:
        """Return the running sandbox, or the error page to send."""
        running = self._service.find_running(sandbox_id)
        if running is not None and running.record.auto_resume:
            # A request during a pause waits for its end and then resumes the sandbox.
            await running.pause_lock.wait_unlocked()
            running = self._service.find_running(sandbox_id)
        if running is not None:
            return running
        record = self._service.find_auto_resumable(sandbox_id)
        if record is None:
            return sandbox_not_found(sandbox_id)
        return _rejection(record, port, scope) or await self._resume(sandbox_id)

    async def _resume(self, sandbox_id: str) -> Sandbox | ErrorPage:
        try:
            await self._resume_once(sandbox_id)
        except MachineFull as error:
            return machine_full(sandbox_id, str(error))
        except (EngineError, OSError) as error:
            log.error("auto-resume failed", id=sandbox_id, error=error)
        return self._service.find_running(sandbox_id) or sandbox_not_found(sandbox_id)

    async def _resume_once(self, sandbox_id: str) -> None:
        """Resume once for all concurrent requests; they share the result."""
        task = self._under_way.get(sandbox_id)
        if task is None:
            task = asyncio.create_task(self._service.auto_resume(sandbox_id))
            self._under_way[sandbox_id] = task
            task.add_done_callback(lambda _: self._under_way.pop(sandbox_id))
        await asyncio.shield(task)


def _rejection(record: SandboxRecord, port: int, scope: Scope) -> ErrorPage | None:
    """Check the request against the paused sandbox's record."""
    if port != ENVD_PORT:
        return find_rejection(record, scope["headers"])
    if _is_probe(scope):
        return sandbox_not_found(record.id)
    return None if _is_authorized(record, scope) else resume_refused(record.id)


def _is_probe(scope: Scope) -> bool:
    """Return whether the request is a probe that must not resume the sandbox.

    SDKs check its health after a pause cut a stream, and browsers send preflight requests.
    """
    return bool(scope["method"] == "OPTIONS" or scope["path"] == "/health")


def _is_authorized(record: SandboxRecord, scope: Scope) -> bool:
    access_token = Headers(scope=scope).get("x-access-token")
    if access_token is not None:
        return is_token(record.access_token, access_token)
    if scope["path"] == "/files" and scope["method"] in ("GET", "POST"):
        with suppress(AccessDenied, InvalidExpiration):
            check_signature(signed_request(scope), record.access_token)
            return True
    return False
