import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_tools.interpreter.environment import Changes, Environment, Read
from sandbox_tools.interpreter.kernel import Kernel, Launch
from sandbox_tools.interpreter.languages import (
    WARM_UP,
    Languages,
    kernel_environment,
    set_variables,
)
from sandbox_tools.interpreter.output import Line, Output, error_line
from sandbox_tools.interpreter.process import KernelEnded

_INTERRUPTS = 2
_INTERRUPT_S = 2.0
_MOST_WAITING = 64
_IGNORED = (
    "The context was restarted because its last code did not react to interrupts. "
    "Its variables are lost. Run your code again."
)
_IDLE = "The context was stopped because no code had run in it for {minutes:g} minutes. Its variables are lost. Run your code again."
_ENDED = "The context was restarted because its kernel had ended. Its variables are lost. Run your code again."

log = logging.getLogger(__name__)


class TooManyExecutions(Exception):
    def __init__(self) -> None:
        super().__init__(
            f"{_MOST_WAITING} executions wait for this context already. Wait for them to end, or create another context."
        )


def _new_future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass
class Execution:
    """One run of code; its client may leave before it ends."""

    output: Output = field(default_factory=Output)
    interrupted: asyncio.Future[None] = field(default_factory=_new_future)
    is_abandoned: bool = False

    def interrupt(self) -> None:
        if not self.interrupted.done():
            self.interrupted.set_result(None)

    def abandon(self) -> None:
        """Interrupt it and drop its output: the client has left."""
        self.is_abandoned = True
        self.output.discard()
        self.interrupt()


class Context:
    """One kernel with its variables; it runs one execution at a time."""

    def __init__(
        self,
        identifier: str,
        language: str,
        cwd: Path,
        *,
        languages: Languages,
        directory: Path,
        envs: Read,
    ) -> None:
        self.id, self.language, self.cwd = identifier, language, cwd
        self.execution_count = 0
        self.idle_steps = 0
        self._languages = languages
        self._directory = directory
        self._envs = envs
        self._environment = Environment(os.environ, envs)
        self._kernel: Kernel | None = None
        self._lock = asyncio.Lock()
        self._running: Execution | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost: str | None = None
        self._restarted = _new_future()
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    @property
    def pid(self) -> int | None:
        """The process of the kernel, unless it was stopped."""
        return None if self._kernel is None else self._kernel.process.pid

    def view(self) -> dict[str, object]:
        """Describe the context to clients."""
        return {
            "id": self.id,
            "language": self.language,
            "cwd": str(self.cwd),
            "busy": self.is_busy,
            "execution_count": self.execution_count,
        }

    async def start(self) -> None:
        """Start the kernel before code needs it."""
        async with self._lock:
            await self._get_kernel()

    def execute(self, code: str, variables: Mapping[str, str]) -> Execution:
        """Run code after the executions that were requested before."""
        if len(self._tasks) >= _MOST_WAITING:
            raise TooManyExecutions
        execution = Execution()
        task = asyncio.create_task(self._execute(execution, code, variables))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return execution

    def interrupt(self) -> None:
        """Interrupt what is running, and restart the kernel if it does not react."""
        if self._running is not None:
            self._running.interrupt()

    async def restart(self) -> None:
        """Replace the kernel by a new one; what is running ends with an error."""
        await self._kill_running()
        async with self._lock:
            await self._replace_kernel()
            self._lost = None

    async def warm_up(self) -> None:
        """Run once what the first execution would take longer for."""
        async with self._lock:
            await self._run_silently(await self._get_kernel(), WARM_UP.get(self.language, ""))

    async def stop(self, minutes: float) -> None:
        """End an idle kernel; the next execution starts another, and is told if variables were lost."""
        async with self._lock:
            if self._kernel is not None and not self._tasks:
                await self._drop_kernel()
                self._lost = _IDLE.format(minutes=minutes) if self.execution_count else None

    async def close(self) -> None:
        """End the kernel and everything that it has started."""
        self._is_closed = True
        await self._kill_running()
        async with self._lock:
            await self._drop_kernel()

    async def _execute(self, execution: Execution, code: str, variables: Mapping[str, str]) -> None:
        try:
            async with self._lock:
                if execution.is_abandoned:
                    return
                self._running = execution
                self.idle_steps = 0
                try:
                    await self._run(execution, code, variables)
                finally:
                    self._running = None
                    self.idle_steps = 0
        except (OSError, KernelEnded) as error:
            execution.output.finish(
                error_line("KernelNotStarted", f"The kernel did not start. {error}")
            )
        except Exception:
            log.exception("execution failed context=%s", self.id)
            execution.output.finish(
                error_line("InternalError", "The execution failed. See the interpreter's log.")
            )
        finally:
            execution.output.finish()

    async def _run(self, execution: Execution, code: str, variables: Mapping[str, str]) -> None:
        if self._is_closed:
            execution.output.finish(self._gone())
            return
        kernel = await self._get_kernel()
        if self._lost is not None:
            reason, self._lost = self._lost, None
            execution.output.finish(error_line("ContextRestarting", reason))
            return
        self.execution_count += 1
        try:
            changes = await self._environment.changes(variables)
            if kernel.takes_variables:
                await self._until_ended(kernel, execution, code, changes)
            else:
                await self._set(kernel, changes.before)
                await self._until_ended(kernel, execution, code)
                await self._set(kernel, changes.after)
        except KernelEnded as error:
            await self._after_end(execution, error)

    async def _until_ended(
        self, kernel: Kernel, execution: Execution, code: str, changes: Changes | None = None
    ) -> None:
        running = asyncio.create_task(kernel.execute(code, execution.output, changes=changes))
        try:
            await asyncio.wait(
                {running, execution.interrupted, self._restarted},
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not running.done() and not self._restarted.done():
                await self._interrupt(kernel, running)
            if not running.done():
                running.cancel()
                if self._restarted.done():
                    execution.output.finish(self._gone())
                else:
                    self._lost = _IGNORED if execution.is_abandoned else None
                    execution.output.finish(error_line("ContextRestarting", _IGNORED))
                await self._replace_kernel()
            else:
                await running
        finally:
            if not running.done():
                await asyncio.wait({running})

    async def _interrupt(self, kernel: Kernel, running: asyncio.Task[None]) -> None:
        for _ in range(_INTERRUPTS):
            kernel.interrupt()
            await asyncio.wait(
                {running, self._restarted},
                timeout=_INTERRUPT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if running.done() or self._restarted.done():
                return

    async def _after_end(self, execution: Execution, error: KernelEnded) -> None:
        is_restarted = self._restarted.done()
        execution.output.finish(
            self._gone() if is_restarted else error_line("KernelEnded", str(error))
        )
        await self._replace_kernel()
        if execution.is_abandoned:
            self._lost = _ENDED

    def _gone(self) -> Line:
        if self._is_closed:
            return error_line("ContextDeleted", "The context was deleted.")
        return error_line("ContextRestarting", "The context was restarted. Its variables are lost.")

    async def _kill_running(self) -> None:
        if self._running is not None and self._kernel is not None:
            if not self._restarted.done():
                self._restarted.set_result(None)
            await self._kernel.process.kill()

    async def _get_kernel(self) -> Kernel:
        if self._kernel is not None and self._kernel.process.ended.done():
            await self._drop_kernel()
            self._lost = _ENDED
        if self._kernel is None:
            await self._start_kernel()
        assert self._kernel is not None
        return self._kernel

    async def _replace_kernel(self) -> None:
        await self._drop_kernel()
        if not self._is_closed:
            await self._start_kernel()

    async def _start_kernel(self) -> None:
        self._restarted = _new_future()
        self.execution_count = 0
        self._environment = Environment(os.environ, self._envs)
        launch = Launch(
            context_id=self.id,
            cwd=self.cwd,
            environment=kernel_environment(self._environment.values),
            directory=self._directory,
        )
        self._kernel = await self._languages.start(self.language, launch)

    async def _drop_kernel(self) -> None:
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            await kernel.process.kill()
            kernel.close()

    async def _set(self, kernel: Kernel, values: Mapping[str, str | None]) -> None:
        if values:
            await self._run_silently(kernel, set_variables(self.language, values))

    async def _run_silently(self, kernel: Kernel, snippet: str) -> None:
        if snippet:
            output = Output()
            output.discard()
            await kernel.execute(snippet, output, is_silent=True)
