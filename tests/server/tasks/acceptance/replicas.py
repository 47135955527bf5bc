"""Two server processes with one database, one engine and one forge, and the task that something is killed under."""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.models import Task
from sandbox_server.db.session import Sessions
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.provider import Endpoint
from tests.engine.engine_process import EngineProcess
from tests.server.forges.support.world import ForgeWorld
from tests.server.support.server_process import ServerProcess, server_process, variables_of
from tests.server.tasks.support.task_client import TaskClient

LEASE_S = 3
PATIENCE_S = 300
LINES = 10
LOG = "/home/user/widgets/log"

WRITING = f"""
touch log; want={LINES}; if grep -q 'Write more' "$TASK_PROMPT_FILE"; then want={LINES + 5}; fi
until [ "$(wc -l <log)" -ge $want ]; do
    echo "line $(($(wc -l <log) + 1)) $(date +%s%N)" >>log
    git add log && git commit --quiet --message 'feat: add a line'
    sleep 0.3
done"""
"""An agent that appends lines, each of them unique, and commits each; it goes on where it was."""


def is_of_writing(line: str) -> bool:
    return re.fullmatch(r"line \d+ \d+", line) is not None


@dataclass
class TaskReplicas:
    """What happens to tasks while their servers, their engine, their sandboxes and their agents are killed."""

    servers: tuple[ServerProcess, ServerProcess]
    engine: EngineProcess
    sessions: Sessions
    world: ForgeWorld
    tasks: TaskClient

    async def row(self, task_id: str) -> Task:
        async with self.sessions() as session:
            return await session.get_one(Task, task_id)

    def ask(self, server: ServerProcess) -> None:
        """Call this server from now on."""
        self.tasks.api.base_url = httpx.URL(server.url)

    def leave_to(self, server: ServerProcess) -> None:
        """Stop the other server for a while, so that all there is to do is this one's."""
        self.ask(server)
        _signal(self.other(server), signal.SIGSTOP)

    def other(self, server: ServerProcess) -> ServerProcess:
        return self.servers[1 - self.servers.index(server)]

    def kill(self, server: ServerProcess) -> None:
        """Kill a server in the middle of whatever it does; the other one is left."""
        _signal(server, signal.SIGKILL)
        server.wait()
        _signal(self.other(server), signal.SIGCONT)
        self.ask(self.other(server))

    async def lines(self, task: dict[str, Any]) -> list[str]:
        """Read what the agent has written so far, as far as it is whole."""
        row = await self.row(task["id"])
        text = row.sandbox_id and await self.tasks.read_file(row.sandbox_id, LOG)
        return [line for line in (text or "").splitlines() if is_of_writing(line)]

    async def written(self, task: dict[str, Any], count: int) -> list[str]:
        """Wait until the agent has written this many lines."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := await self.lines(task)) < count:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.2)
        return found

    def published(self, task: dict[str, Any]) -> list[str]:
        return self.world.git.read(self.world.repository, task["branch"], "log").splitlines()

    def pulls(self, branch: str) -> list[dict[str, Any]]:
        found = self.world.list_pulls(per_page="100")
        return [pull for pull in found if pull["head"]["ref"] == branch]

    def require_whole(self, task: dict[str, Any], older: list[str], *, count: int = LINES) -> None:
        """Check that there is one branch, one pull request, and each line once, the older ones unchanged."""
        branch = task["branch"]
        assert [
            one for one in self.world.git.branches(self.world.repository) if task["id"] in one
        ] == [branch]
        assert self.world.head(branch) == task["published_sha"] == task["head_sha"]
        assert len(self.pulls(branch)) == 1
        published = self.published(task)
        assert published[: len(older)] == older
        assert [int(line.split()[1]) for line in published] == [*range(1, count + 1)]


def _signal(server: ServerProcess, number: signal.Signals) -> None:
    for pid in server.children:  # the server proper; its parent only waits for it
        os.kill(pid, number)


@asynccontextmanager
async def task_replicas(
    database_url: str, sessions: Sessions, engine: EngineProcess, world: ForgeWorld
) -> AsyncIterator[TaskReplicas]:
    """Start both servers, and leave nothing of theirs at the engine."""
    async with AsyncExitStack() as stack:
        backend = await _backend(sessions, engine)
        stack.push_async_callback(_sweep, backend)
        variables = {
            **variables_of(engine, database_url),
            "SANDBOX_SERVER_LEASE_S": str(LEASE_S),
            "SANDBOX_SERVER_FORGE_HOSTS": ",".join(world.hosts),
            "SANDBOX_SERVER_LOG_LEVEL": "DEBUG",
        }
        first, second = (
            stack.enter_context(server_process("--capacity", "40", variables=variables))
            for _ in range(2)
        )
        await asyncio.to_thread(first.start)
        second.state_dir.mkdir()
        shutil.copy(first.state_dir / "admin.key", second.state_dir)
        await asyncio.to_thread(second.start)
        api = await stack.enter_async_context(first.client())
        components: Any = SimpleNamespace(sessions=sessions, backends={"e2b": backend})
        tasks = TaskClient(api, components)
        await tasks.put_forge(**world.app)
        yield TaskReplicas((first, second), engine, sessions, world, tasks)


async def _backend(sessions: Sessions, engine: EngineProcess) -> E2BBackend:
    async with sessions.begin() as session:
        installation = await InstallationRepository(session).find_or_make()
    endpoint = Endpoint(
        name="e2b",
        api_url=engine.url,
        api_key=engine.api_key,
        sandbox_url=engine.url,
        domain="localhost",
    )
    return E2BBackend(endpoint, installation_id=installation.id)


async def _sweep(backend: E2BBackend) -> None:
    for left in await backend.list_all():
        await backend.kill(left.id)
    await backend.close()


def processes_with(marker: str) -> list[int]:
    """Find the processes of sandboxes with a word in their arguments, as the host counts them."""
    own = Path("/proc/self/ns/pid").readlink()
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            is_outside = (directory / "ns/pid").readlink() == own
            arguments = (directory / "cmdline").read_bytes()
        except OSError:
            continue
        if not is_outside and marker.encode() in arguments:
            found.append(int(directory.name))
    return found
