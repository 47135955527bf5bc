from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Unpack

from sandbox_client import models
from sandbox_client._async.commands import LONGEST_RUN_WAIT_S
from sandbox_client._async.concurrency import Callback, invoke
from sandbox_client._async.pagination import list_all
from sandbox_client._async.runs import AsyncRun, RunKind
from sandbox_client._async.transport import AsyncTransport
from sandbox_client._async.waiting import begin
from sandbox_client.events import CodeEnd, CodeErrorEvent, CodeEvent, CodeResultEvent, CommandOutput
from sandbox_client.events.parsing import read_code_event
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import CodeOptions


class AsyncCodeExecution(AsyncRun[models.CodeOutcome, CodeEvent]):
    """Code that runs in a sandbox's interpreter. It keeps running when nobody follows it."""

    _kind = RunKind(models.CodeOutcome, "code", "events", read_code_event, CodeEnd)

    async def interrupt(self) -> None:
        """Interrupt the code; the variables of its context are kept."""
        await self._transport.send(call("POST", f"{self._path}/interrupt"))

    async def read_result(self, number: int, format_name: str) -> bytes:
        """Read one format of a result as a file, such as a figure as `png`."""
        path = f"{self._path}/results/{number}/{segment(format_name)}"
        return (await self._transport.send(call("GET", path))).content


class AsyncCodeContexts:
    """Contexts of a sandbox's code interpreter: processes with variables of their own."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        self._transport = transport
        self._path = path

    async def list(self) -> list[models.CodeContext]:
        """List the contexts, oldest first."""
        return (await self._transport.fetch(models.CodeContexts, call("GET", self._path))).items

    async def create(
        self, language: str | None = None, *, cwd: str | None = None
    ) -> models.CodeContext:
        """Create a context, by default of Python in the home of the user."""
        body = request_body(models.CodeContextCreate, {"language": language, "cwd": cwd})
        return await self._transport.fetch(models.CodeContext, call("POST", self._path, body))

    async def delete(self, context_id: str) -> None:
        """Delete a context and its variables."""
        await self._transport.delete(call("DELETE", self._of(context_id)))

    async def restart(self, context_id: str) -> None:
        """Restart a context: it keeps its id and loses its variables."""
        await self._transport.send(call("POST", f"{self._of(context_id)}/restart"))

    async def interrupt(self, context_id: str) -> None:
        """Interrupt the code that runs in a context; its variables are kept."""
        await self._transport.send(call("POST", f"{self._of(context_id)}/interrupt"))

    def _of(self, context_id: str) -> str:
        return f"{self._path}/{segment(context_id)}"


class AsyncCode:
    """Code run by the interpreter of a sandbox. Running some resumes a paused sandbox."""

    _transport: AsyncTransport
    _path: str

    @property
    def contexts(self) -> AsyncCodeContexts:
        """The contexts of the interpreter."""
        return AsyncCodeContexts(self._transport, f"{self._path}/contexts")

    async def run_code(
        self,
        code: str,
        *,
        on_stdout: Callback[[str]] | None = None,
        on_stderr: Callback[[str]] | None = None,
        on_result: Callback[[models.CodeResult]] | None = None,
        on_error: Callback[[models.CodeError]] | None = None,
        **options: Unpack[CodeOptions],
    ) -> models.CodeOutcome:
        """Run code and wait until it ends; an exception of the code is `error` of the outcome.

        Callbacks receive output and results as they arrive. The code keeps running if the wait is cancelled.
        """
        if not any((on_stdout, on_stderr, on_result, on_error)):
            body = request_body(models.CodeCreate, {"code": code, **options})
            request = create(f"{self._path}/code", body, wait=LONGEST_RUN_WAIT_S)
            record = await self._transport.fetch(models.CodeOutcome, request)
            return await AsyncCodeExecution(self._transport, record).wait()
        execution = await self.start_code(code, **options)
        async with aclosing(execution.follow()) as events:
            async for event in events:
                match event:
                    case CommandOutput(type="stdout"):
                        await invoke(on_stdout, event.decoded)
                    case CommandOutput():
                        await invoke(on_stderr, event.decoded)
                    case CodeResultEvent():
                        await invoke(on_result, event)
                    case CodeErrorEvent():
                        await invoke(on_error, event)
        return await execution.refresh()

    async def start_code(self, code: str, **options: Unpack[CodeOptions]) -> AsyncCodeExecution:
        """Start code and return immediately."""
        body = request_body(models.CodeCreate, {"code": code, **options})
        record = await begin(self._transport, self._path, "code", body, models.CodeOutcome)
        return AsyncCodeExecution(self._transport, record)

    async def get_code_execution(self, execution_id: str) -> AsyncCodeExecution:
        """Get an execution of code by its id."""
        request = call("GET", f"{self._path}/code/{segment(execution_id)}")
        return AsyncCodeExecution(
            self._transport, await self._transport.fetch(models.CodeOutcome, request)
        )

    def list_code_executions(self) -> AsyncGenerator[models.CodeExecutionRead, None]:
        """List executions of code, newest first."""
        return list_all(
            self._transport, f"{self._path}/code", models.Page[models.CodeExecutionRead]
        )
