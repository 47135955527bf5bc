"""Converts command requests to processes, and inserts them as commands."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sandbox_server.commands.recording_repository import RecordingRepository
from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Command, Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.commands import CommandKind, CommandRequest
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import Idempotency
from sandbox_server.jobs.kinds import AGENT_RUN
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.protocol.processes import NewProcess

# The same as for terminals of the SDK.
_TERMINAL_ENVS = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


def to_process(tag: str, request: CommandRequest) -> NewProcess:
    envs: Mapping[str, str] = request.envs
    args = ["/bin/bash", "-l", "-c", request.cmd]
    if request.size is not None:
        envs = {**_TERMINAL_ENVS, **envs}
        args = args if request.cmd else ["/bin/bash", "-i", "-l"]
    return NewProcess(
        tag=tag,
        args=args,
        cwd=request.cwd,
        envs=envs,
        user=request.user,
        stdin=request.stdin,
        size=request.size,
    )


def to_columns(request: CommandRequest) -> dict[str, Any]:
    """Return the columns to store. Environment variables are not stored."""
    size = request.size
    return {
        "kind": request.kind,
        "name": request.name,
        "cmd": request.cmd,
        "cwd": request.cwd,
        "user": request.user,
        "background": request.background,
        "stdin": request.stdin,
        "timeout": request.timeout,
        "cols": None if size is None else size.cols,
        "rows": None if size is None else size.rows,
        "agent": request.agent,
        "code": request.code,
    }


class CommandInsertion:
    """Inserts commands under the lease of this process's recorder; one per idempotency key."""

    def __init__(self, sessions: Sessions, *, by: str, lease: timedelta) -> None:
        self._sessions = sessions
        self._by = by
        self._lease = lease

    async def find_created(self, caller: Caller, idempotency: Idempotency | None) -> str | None:
        """Find the command that the same request has created before."""
        if idempotency is None:
            return None
        async with without_transaction(self._sessions) as session:
            return await IdempotencyRepository(session).find(caller.tenant_id, idempotency)

    async def add_if_running(
        self,
        caller: Caller,
        sandbox_id: str,
        request: CommandRequest,
        idempotency: Idempotency | None,
        *,
        backends: Sequence[str],
    ) -> tuple[Sandbox, Command] | None:
        """Insert the command if its sandbox runs at one of these backends and the idempotency key is new, in one statement; None otherwise."""
        if request.kind is CommandKind.SERVICE or _has_follow_up(request):
            return None
        columns = _columns(caller, sandbox_id, request)
        async with without_transaction(self._sessions) as session:
            return await RecordingRepository(session).add_if_running(
                by=self._by,
                lease=self._lease,
                idempotency=idempotency,
                backends=backends,
                **columns,
            )

    async def add(
        self,
        caller: Caller,
        sandbox_id: str,
        request: CommandRequest,
        idempotency: Idempotency | None,
    ) -> Command | str:
        """Insert the command. If the same request has already created one, return its id."""
        columns = _columns(caller, sandbox_id, request)
        command_id: str = columns["id"]
        if idempotency is None and not _has_follow_up(request):
            async with without_transaction(self._sessions) as session:
                return await RecordingRepository(session).add(
                    by=self._by, lease=self._lease, **columns
                )
        async with self._sessions.begin() as session:
            created = await IdempotencyRepository(session).claim(
                caller.tenant_id, idempotency, resource="command", resource_id=command_id
            )
            if created != command_id:
                return created
            if _has_follow_up(request):
                await JobRepository(session).due(AGENT_RUN, command_id)
            return await RecordingRepository(session).add(by=self._by, lease=self._lease, **columns)


def _columns(caller: Caller, sandbox_id: str, request: CommandRequest) -> dict[str, Any]:
    return {
        "id": new_id(),
        "tenant_id": caller.tenant_id,
        "sandbox_id": sandbox_id,
        **to_columns(request),
    }


def _has_follow_up(request: CommandRequest) -> bool:
    return request.agent is not None and "afterwards" in request.agent
