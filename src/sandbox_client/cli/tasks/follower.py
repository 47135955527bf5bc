import asyncio
from collections import deque
from contextlib import aclosing

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.failures import SIGNALLED, TIMED_OUT
from sandbox_client.cli.tasks.log_lines import TaskLogLines
from sandbox_client.cli.tasks.lookup import find_pull
from sandbox_client.cli.tasks.outcome import exit_code_of, is_at_rest, print_outcome
from sandbox_client.events import LogItem
from sandbox_client.models import LogEvent, LogGap, TaskRead

_SIGINT = 2
_STAGES = frozenset({"task.stage", "task.ended"})


class TaskFollower:
    """Prints the log of a task until it is at rest. It goes on when nobody follows it."""

    def __init__(
        self,
        invocation: Invocation,
        client: AsyncSandboxClient,
        task: TaskRead,
        *,
        before: TaskRead | None = None,
    ) -> None:
        """`before`: the task as it was before a request that makes it leave its stage."""
        self._args = invocation.args
        self._output = invocation.output
        self._interrupts = invocation.interrupts
        self._client = client
        self._task = task
        self._left = None if before is None else before.stage_at
        self._lines = TaskLogLines(invocation.output)

    async def follow(self, *, after: int | None = None, tail: int | None = None) -> int:
        """Follow from an entry, or with the last ones; return the exit code."""
        following = asyncio.ensure_future(self._print_log(after=after, tail=tail))
        try:
            with self._interrupts.handled_by(lambda: _cancel(following)):
                async with asyncio.timeout(in_seconds(self._args.wait)):
                    await asyncio.wait({following})
        except TimeoutError:
            return self._detach("The time is over", TIMED_OUT)
        finally:
            await _end(following)
        if following.cancelled():
            return self._detach("Detached", SIGNALLED + _SIGINT)
        following.result()
        return await self._tell_outcome()

    async def _print_log(self, *, after: int | None, tail: int | None) -> None:
        if self._is_at_rest:
            await self._print_present(after=after, tail=tail)
            return
        items = self._client.task_log(self._task.id, after=after, tail=tail)
        async with aclosing(items):
            async for item in items:
                self._print(item)
                if _may_end(item) and await self._has_come_to_rest(item):
                    break
        self._print_rest()
        self._task = await self._client.get_task(self._task.id)

    async def _print_present(self, *, after: int | None, tail: int | None) -> None:
        """Print what is there; the API counts from the end for streams only."""
        items = self._client.task_log(self._task.id, after=after, follow=False)
        for item in deque([item async for item in items], maxlen=tail):
            self._print(item)
        self._print_rest()

    def _print_rest(self) -> None:
        for line in self._lines.rest():
            self._output.print(line)

    def _print(self, item: LogItem) -> None:
        if self._output.as_json:
            self._output.print_model(item)
        elif not self._output.is_quiet:
            for line in self._lines.of(item):
                self._output.print(line)

    @property
    def _is_at_rest(self) -> bool:
        task = self._task
        return task.stage_at != self._left and is_at_rest(task, until_end=self._args.until_end)

    async def _has_come_to_rest(self, item: LogItem) -> bool:
        """Ask for the task: an older entry may tell a stage that it has left since."""
        self._task = await self._client.get_task(self._task.id)
        is_current = not isinstance(item, LogEvent) or item.at >= self._task.stage_at
        return self._is_at_rest and is_current

    async def _tell_outcome(self) -> int:
        pull = await find_pull(self._client, self._task.id)
        print_outcome(self._output, self._task, pull)
        return exit_code_of(self._task)

    def _detach(self, why: str, code: int) -> int:
        self._output.note("")
        self._output.note(f"{why}; the task goes on.")
        self._output.note(f"Come back:  sbx task watch {self._task.id}")
        self._output.note(f"Stop it:    sbx task cancel {self._task.id}")
        return code


def _may_end(item: LogItem) -> bool:
    return isinstance(item, LogGap) or item.type in _STAGES


def _cancel(following: "asyncio.Future[None]") -> None:
    following.cancel()


async def _end(following: "asyncio.Future[None]") -> None:
    following.cancel()
    await asyncio.wait({following})
