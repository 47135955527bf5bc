import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_tools.interpreter.kernel import Kernel, Launch
from sandbox_tools.interpreter.languages import Languages, kernel_environment, set_variables
from sandbox_tools.interpreter.output import Line, Output, error_line
from sandbox_tools.interpreter.process import KernelEnded

_INTERRUPTS = 2
_INTERRUPT_S = 2.0
_MOST_WAITING = 64
_IGNORED = (
    "The context was restarted because its last code did not react to interrupts. "
    "Its variables are lost. Run your code again."
)
_ENDED = "The context was restarted because its kernel had ended. Its variables are lost. Run your code again."

log = logging.getLogger(__name__)
Envs = Callable[[], Awaitable[Mapping[str, str] | None]]


class TooManyExecutions(Exception):
    def __init__(self) -> None:
        super().__init__(
            f"{_MOST_WAITING} executions wait for this context already. Wait for them to end, or create another context."
        )


@dataclass
class Execution:
    """One run of code; its client may leave before it ends."""

    output: Output = field(default_factory=Output)
    _interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    is_abandoned: bool = False

    def interrupt(self) -> None:
        self._interrupted.set()

    def abandon(self) -> None:
        """Interrupt it and drop its output: the client has left."""
        self.is_abandoned = True
        self.output.discard()
        self._interrupted.set()

    async def wait_interrupted(self) -> None:
        await self._interrupted.wait()


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
        envs: Envs,
    ) -> None:
        self.id, self.language, self.cwd = identifier, language, cwd
        self.execution_count = 0
        self._languages = languages
        self._directory = directory
        self._envs = envs
        self._has_envs = False
        self._base: dict[str, str] = dict(os.environ)
        self._kernel: Kernel | None = None
        self._lock = asyncio.Lock()
        self._running: Execution | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost: str | None = None
        self._restarted = asyncio.Event()
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        return self._running is not None

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
                try:
                    await self._run(execution, code, variables)
                finally:
                    self._running = None
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
            await self._prepare(kernel, variables)
            await self._until_ended(kernel, execution, code)
            if variables:
                await self._reset(kernel, variables)
        except KernelEnded as error:
            await self._after_end(execution, error)

    async def _until_ended(self, kernel: Kernel, execution: Execution, code: str) -> None:
        running = asyncio.create_task(kernel.execute(code, execution.output))
        interrupted = asyncio.create_task(execution.wait_interrupted())
        restarted = asyncio.create_task(self._restarted.wait())
        try:
            await asyncio.wait(
                {running, interrupted, restarted}, return_when=asyncio.FIRST_COMPLETED
            )
            if not running.done() and not restarted.done():
                await self._interrupt(kernel, running, restarted)
            if not running.done():
                running.cancel()
                if restarted.done():
                    execution.output.finish(self._gone())
                else:
                    self._lost = _IGNORED if execution.is_abandoned else None
                    execution.output.finish(error_line("ContextRestarting", _IGNORED))
                await self._replace_kernel()
            else:
                await running
        finally:
            interrupted.cancel()
            restarted.cancel()
            await asyncio.wait({running})

    async def _interrupt(
        self, kernel: Kernel, running: asyncio.Task[None], restarted: asyncio.Task[bool]
    ) -> None:
        for _ in range(_INTERRUPTS):
            kernel.interrupt()
            await asyncio.wait(
                {running, restarted},
                timeout=_INTERRUPT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if running.done() or restarted.done():
                return

    async def _after_end(self, execution: Execution, error: KernelEnded) -> None:
        is_restarted = self._restarted.is_set()
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
            self._restarted.set()
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
        self._restarted.clear()
        self.execution_count = 0
        self._base = dict(os.environ)
        self._has_envs = False
        launch = Launch(
            context_id=self.id,
            cwd=self.cwd,
            environment=kernel_environment(self._base),
            directory=self._directory,
        )
        self._kernel = await self._languages.start(self.language, launch)

    async def _drop_kernel(self) -> None:
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            await kernel.process.kill()
            kernel.close()

    async def _prepare(self, kernel: Kernel, variables: Mapping[str, str]) -> None:
        values = dict(variables)
        if not self._has_envs and (envs := await self._envs()) is not None:
            self._has_envs = True
            self._base |= envs
            values = {**envs, **values}
        await self._set(kernel, values, ())

    async def _reset(self, kernel: Kernel, variables: Mapping[str, str]) -> None:
        """Give variables of one execution the values back that they have in the sandbox."""
        values = {name: self._base[name] for name in variables if name in self._base}
        await self._set(kernel, values, [name for name in variables if name not in self._base])

    async def _set(
        self, kernel: Kernel, values: Mapping[str, str], removed: "list[str] | tuple[()]"
    ) -> None:
        snippet = set_variables(self.language, values, removed) if values or removed else ""
        if snippet:
            output = Output()
            output.discard()
            await kernel.execute(snippet, output, is_silent=True)
