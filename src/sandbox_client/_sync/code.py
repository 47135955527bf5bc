from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Unpack

from sandbox_client import models
from sandbox_client._sync.commands import LONGEST_RUN_WAIT_S
from sandbox_client._sync.concurrency import Callback, invoke
from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.runs import Run, RunKind
from sandbox_client._sync.transport import Transport
from sandbox_client._sync.waiting import begin
from sandbox_client.events import CodeEnd, CodeErrorEvent, CodeEvent, CodeResultEvent, CommandOutput
from sandbox_client.events.parsing import read_code_event
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import CodeOptions


class CodeExecution(Run[models.CodeOutcome, CodeEvent]):
    """Code that runs in a sandbox's interpreter. It keeps running when nobody follows it."""

    _kind = RunKind(models.CodeOutcome, "code", "events", read_code_event, CodeEnd)

    def interrupt(self) -> None:
        """Interrupt the code; the variables of its context are kept."""
        self._transport.send(call("POST", f"{self._path}/interrupt"))

    def read_result(self, number: int, format_name: str) -> bytes:
        """Read one format of a result as a file, such as a figure as `png`."""
        path = f"{self._path}/results/{number}/{segment(format_name)}"
        return (self._transport.send(call("GET", path))).content


class CodeContexts:
    """Contexts of a sandbox's code interpreter: processes with variables of their own."""

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = path

    def list(self) -> list[models.CodeContext]:
        """List the contexts, oldest first."""
        return (self._transport.fetch(models.CodeContexts, call("GET", self._path))).items

    def create(self, language: str | None = None, *, cwd: str | None = None) -> models.CodeContext:
        """Create a context, by default of Python in the home of the user."""
        body = request_body(models.CodeContextCreate, {"language": language, "cwd": cwd})
        return self._transport.fetch(models.CodeContext, call("POST", self._path, body))

    def delete(self, context_id: str) -> None:
        """Delete a context and its variables."""
        self._transport.delete(call("DELETE", self._of(context_id)))

    def restart(self, context_id: str) -> None:
        """Restart a context: it keeps its id and loses its variables."""
        self._transport.send(call("POST", f"{self._of(context_id)}/restart"))

    def interrupt(self, context_id: str) -> None:
        """Interrupt the code that runs in a context; its variables are kept."""
        self._transport.send(call("POST", f"{self._of(context_id)}/interrupt"))

    def _of(self, context_id: str) -> str:
        return f"{self._path}/{segment(context_id)}"


class Code:
    """Code run by the interpreter of a sandbox. Running some resumes a paused sandbox."""

    _transport: Transport
    _path: str

    @property
    def contexts(self) -> CodeContexts:
        """The contexts of the interpreter."""
        return CodeContexts(self._transport, f"{self._path}/contexts")

    def run_code(
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
            record = self._transport.fetch(models.CodeOutcome, request)
            return CodeExecution(self._transport, record).wait()
        execution = self.start_code(code, **options)
        with closing(execution.follow()) as events:
            for event in events:
                match event:
                    case CommandOutput(type="stdout"):
                        invoke(on_stdout, event.decoded)
                    case CommandOutput():
                        invoke(on_stderr, event.decoded)
                    case CodeResultEvent():
                        invoke(on_result, event)
                    case CodeErrorEvent():
                        invoke(on_error, event)
        return execution.refresh()

    def start_code(self, code: str, **options: Unpack[CodeOptions]) -> CodeExecution:
        """Start code and return immediately."""
        body = request_body(models.CodeCreate, {"code": code, **options})
        record = begin(self._transport, self._path, "code", body, models.CodeOutcome)
        return CodeExecution(self._transport, record)

    def get_code_execution(self, execution_id: str) -> CodeExecution:
        """Get an execution of code by its id."""
        request = call("GET", f"{self._path}/code/{segment(execution_id)}")
        return CodeExecution(self._transport, self._transport.fetch(models.CodeOutcome, request))

    def list_code_executions(self) -> Generator[models.CodeExecutionRead, None, None]:
        """List executions of code, newest first."""
        return list_all(
            self._transport, f"{self._path}/code", models.Page[models.CodeExecutionRead]
        )
