from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from sandbox_client.models import CodeContext
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import InterpreterUnreachable
from sandbox_server.interpreters.connection import InterpreterConnections
from sandbox_server.sandboxes.service import SandboxController


@dataclass(frozen=True)
class ContextUse:
    """A caller's use of a sandbox's contexts, and how long to wait for the sandbox to resume."""

    caller: Caller
    sandbox_id: str
    wait: timedelta


class CodeContexts:
    """Contexts of the interpreter in a sandbox: processes with variables of their own."""

    def __init__(self, controller: SandboxController, connections: InterpreterConnections) -> None:
        self._controller = controller
        self._connections = connections

    async def list_all(self, use: ContextUse) -> Sequence[CodeContext]:
        """List the contexts, oldest first."""
        found = await self._request(use, "GET", "/contexts")
        if not isinstance(found, list):
            raise InterpreterUnreachable("answered with something else than a list of contexts")
        return [_to_context(each) for each in found]

    async def create(self, use: ContextUse, *, language: str, cwd: str | None) -> CodeContext:
        body = {"language": language, "cwd": cwd}
        return _to_context(await self._request(use, "POST", "/contexts", body=body))

    async def delete(self, use: ContextUse, context_id: str) -> None:
        """Delete a context and its variables; code that runs in it ends."""
        await self._request(use, "DELETE", f"/contexts/{context_id}", context_id=context_id)

    async def restart(self, use: ContextUse, context_id: str) -> None:
        """Restart a context under the same id, without its variables."""
        path = f"/contexts/{context_id}/restart"
        await self._request(use, "POST", path, context_id=context_id)

    async def interrupt(self, use: ContextUse, context_id: str) -> None:
        """Interrupt the code that runs in a context; its variables are kept."""
        path = f"/contexts/{context_id}/interrupt"
        await self._request(use, "POST", path, context_id=context_id)

    async def _request(
        self,
        use: ContextUse,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        context_id: str | None = None,
    ) -> Any:
        used = await self._controller.use(use.caller, use.sandbox_id, wait=use.wait)
        with self._controller.activity.hold(used.row):
            return await self._connections.request(used, method, path, body, context_id=context_id)


def _to_context(found: Any) -> CodeContext:
    try:
        return CodeContext.model_validate(found)
    except ValidationError:
        raise InterpreterUnreachable("answered with an invalid context") from None
