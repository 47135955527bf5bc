"""Rows of commands and output as a recorder leaves them."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, func, select, update

from sandbox_server.db.models import Command, CommandOutput
from sandbox_server.db.session import Sessions
from sandbox_server.domain.commands import CommandState
from sandbox_server.domain.ids import new_id


@dataclass
class Recorded:
    """One command's log. Some numbers are skipped, because they belong to other logs of the tenant."""

    sessions: Sessions
    command_id: str
    sandbox_id: str
    seq: int = 0
    sizes: dict[str, int] = field(default_factory=lambda: {"stdout": 0, "stderr": 0})

    async def add(
        self, kind: str, *, offset: int = 0, content: bytes = b"", **data: Any
    ) -> CommandOutput:
        self.seq += 2
        row = CommandOutput(
            sandbox_id=self.sandbox_id,
            seq=self.seq,
            command_id=self.command_id,
            type=kind,
            offset=offset,
            content=content,
            data=data,
        )
        async with self.sessions.begin() as session:
            session.add(row)
        return row

    async def write(self, stream: str, content: bytes) -> CommandOutput:
        offset = self.sizes[stream]
        self.sizes[stream] += len(content)
        return await self.add(stream, offset=offset, content=content)

    async def drop(self, stream: str, fallen: list[CommandOutput]) -> None:
        """Replace the first pieces after the head of a stream by one gap."""
        of_stream = CommandOutput.data["stream"].astext == stream
        earlier = select(CommandOutput).where(
            CommandOutput.command_id == self.command_id, of_stream, CommandOutput.type == "gap"
        )
        async with self.sessions.begin() as session:
            gap = await session.scalar(earlier)
            start = fallen[0].offset if gap is None else gap.offset
            size = fallen[-1].offset + len(fallen[-1].content) - start
            await session.execute(
                delete(CommandOutput).where(
                    CommandOutput.command_id == self.command_id,
                    CommandOutput.seq.in_([row.seq for row in (*fallen, gap) if row is not None]),
                )
            )
            session.add(
                CommandOutput(
                    sandbox_id=self.sandbox_id,
                    seq=fallen[-1].seq,
                    command_id=self.command_id,
                    type="gap",
                    offset=start,
                    data={"stream": stream, "size": size, "reason": "It was too much."},
                )
            )

    async def end(self, *, exit_code: int = 0) -> None:
        await self.add("exit", state="exited", exit_code=exit_code, reason=None)
        async with self.sessions.begin() as session:
            await session.execute(
                update(Command)
                .where(Command.id == self.command_id)
                .values(
                    state=CommandState.EXITED,
                    exit_code=exit_code,
                    ended_at=func.clock_timestamp(),
                    last_seq=self.seq,
                    stdout_size=self.sizes["stdout"],
                    stderr_size=self.sizes["stderr"],
                )
            )


async def record_command(
    sessions: Sessions, tenant_id: str, sandbox_id: str, **columns: Any
) -> Recorded:
    """Insert a started command."""
    columns = {"cmd": "true", "state": CommandState.RUNNING, "pid": 1, **columns}
    row = Command(id=new_id(), tenant_id=tenant_id, sandbox_id=sandbox_id, **columns)
    async with sessions.begin() as session:
        session.add(row)
    return Recorded(sessions, row.id, sandbox_id)
