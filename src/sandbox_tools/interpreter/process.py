import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox_tools.toolkit.process_tree import kill_processes_with

CONTEXT_VARIABLE = "SANDBOX_CODE_CONTEXT"
"""Is inherited by everything that a context starts, by which it is found again."""
SERVER_VARIABLE = "SANDBOX_CODE_SERVER"
"""The same for everything that a server with this directory has started."""
_OOM_SCORE = 500
"""The kernel's process is killed before services when memory runs out."""
_KEPT_STDERR = 4096


class KernelEnded(Exception):
    """The process of a kernel ended."""

    def __init__(self, status: int, stderr: str) -> None:
        self.status = status
        last = stderr.strip().splitlines()[-1:]
        super().__init__(" ".join([_describe(status), *last]))


class KernelProcess:
    """The process of a kernel, which ends with this server."""

    def __init__(self, process: Process, context_id: str) -> None:
        self._process = process
        self._context_id = context_id
        self._stderr_end: deque[bytes] = deque(maxlen=2)
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting = asyncio.create_task(self._wait())
        self._draining: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        *,
        context_id: str,
        cwd: Path,
        environment: Mapping[str, str],
        has_output: bool = False,
        descriptors: Sequence[int] = (),
    ) -> "KernelProcess":
        process = await asyncio.create_subprocess_exec(
            *_launcher(),
            *arguments,
            stdin=DEVNULL,
            stdout=PIPE if has_output else DEVNULL,
            stderr=PIPE,
            cwd=cwd,
            env={**environment, CONTEXT_VARIABLE: context_id},
            pass_fds=descriptors,
            start_new_session=True,
            limit=_KEPT_STDERR * 16,
        )
        started = cls(process, context_id)
        if not has_output:
            started._draining = asyncio.create_task(started._keep_end_of_stderr())
        return started

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def streams(self) -> dict[str, asyncio.StreamReader]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        return {"stdout": self._process.stdout, "stderr": self._process.stderr}

    def error(self) -> KernelEnded:
        """Describe why the process ended."""
        return KernelEnded(self.ended.result(), b"".join(self._stderr_end).decode(errors="replace"))

    def interrupt(self) -> None:
        """Send SIGINT to the kernel and to what it runs in the foreground."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGINT)

    async def kill(self) -> None:
        """Kill the kernel and everything that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await asyncio.wait([self._waiting])
        await kill_processes_with(CONTEXT_VARIABLE, self._context_id)

    async def _wait(self) -> None:
        self.ended.set_result(await self._process.wait())

    async def _keep_end_of_stderr(self) -> None:
        assert self._process.stderr is not None
        while read := await self._process.stderr.read(_KEPT_STDERR):
            self._stderr_end.append(read)


def _launcher() -> Sequence[str]:
    if shutil.which("setpriv") is None or shutil.which("choom") is None:
        return ()
    return ("setpriv", "--pdeathsig", "KILL", "--", "choom", "-n", str(_OOM_SCORE), "--")


def _describe(status: int) -> str:
    if status == -signal.SIGKILL:
        return "The kernel was killed, possibly because the sandbox's memory was used up. Its variables are lost."
    if status < 0:
        name = signal.Signals(-status).name
        return f"The kernel was ended by {name}. Its variables are lost."
    return f"The kernel exited with status {status}. Its variables are lost."
