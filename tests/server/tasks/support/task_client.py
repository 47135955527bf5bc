"""What tests of tasks do through the API."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
from sqlalchemy import select, update

from sandbox_client.models import SandboxState
from sandbox_server.components import Components
from sandbox_server.db.models import PullRequest, Sandbox, Task
from sandbox_server.jobs.kinds import DRIFT_CHECK, PULL_REQUEST
from sandbox_server.jobs.repository import JobRepository
from tests.server.forges.support.git_server import git
from tests.server.forges.support.world import ForgeWorld

WAIT = 90
ENDED = frozenset({"merged", "closed", "done", "failed", "cancelled", "timed-out"})


@dataclass
class TaskClient:
    api: httpx.AsyncClient
    components: Components

    async def put_forge(self, **definition: Any) -> None:
        answer = await self.api.put("/v1/forges/forge", json=definition)
        assert answer.status_code in (200, 201), answer.text

    async def add_repository(self, name: str = "acme/widgets", **settings: Any) -> dict[str, Any]:
        """Add the repository of the tests."""
        body = {
            "forge": "forge",
            "full_name": name,
            "settings": {"template": "base", **settings},
        }
        return await self.post("/v1/repositories", json=body)

    async def create(self, command: str, **fields: Any) -> dict[str, Any]:
        body = {"repository": "acme/widgets", "instructions": "Do it.", "command": command}
        return await self.post("/v1/tasks", json={**body, **fields})

    async def post(self, path: str, **options: Any) -> dict[str, Any]:
        answer = await self.api.post(path, **options)
        assert answer.status_code in (200, 201, 202), answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.api.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def task(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.get(f"/v1/tasks/{task_id}")
        return found

    async def items(self, task_id: str, what: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.get(f"/v1/tasks/{task_id}/{what}"))["items"]
        return found

    async def until(
        self,
        task_id: str,
        *stages: str,
        after: dict[str, Any] | None = None,
        timeout: float = WAIT,
    ) -> dict[str, Any]:
        """Wait until a task is in one of these stages, entered since `after`; another end of it fails the test."""
        known = None if after is None else after["stage_at"]
        last: dict[str, Any] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    last = await self.task(task_id)
                    is_new = last["stage_at"] != known
                    if is_new and last["stage"] in stages:
                        return last
                    if is_new and last["stage"] in ENDED | {"waiting-for-user"}:
                        break
                    await asyncio.sleep(0.1)
        raise AssertionError(f"{last['stage']}: {last['stage_reason']}")

    async def until_run(self, task_id: str, *, count: int = 1) -> list[dict[str, Any]]:
        """Wait until a run's command has started."""
        async with asyncio.timeout(WAIT):
            while True:
                runs = await self.items(task_id, "runs")
                if len([run for run in runs if run["started_at"]]) >= count:
                    return runs
                await asyncio.sleep(0.1)

    async def read_file(self, sandbox_id: str, path: str) -> str | None:
        answer = await self.api.get(
            f"/v1/sandboxes/{sandbox_id}/files/content", params={"path": path}
        )
        return answer.text if answer.status_code == 200 else None

    async def write_file(self, sandbox_id: str, path: str) -> None:
        """Make a file in a sandbox that tells a command to go on."""
        url = f"/v1/sandboxes/{sandbox_id}/files/content"
        (await self.api.put(url, params={"path": path}, content=b"now")).raise_for_status()

    async def pass_deadline(self, task_id: str) -> None:
        """Let the deadline of a task be a moment ago."""
        passed = update(Task).where(Task.id == task_id).values(deadline_at=datetime.now(UTC))
        async with self.components.sessions.begin() as session:
            await session.execute(passed)

    async def until_file(self, sandbox_id: str, path: str) -> None:
        """Wait until a file of a sandbox has content."""
        async with asyncio.timeout(WAIT):
            while not await self.read_file(sandbox_id, path):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.1)

    async def kill_at_provider(self, sandbox_id: str) -> None:
        """Kill a sandbox behind the server's back."""
        async with self.components.sessions() as session:
            row = await session.get_one(Sandbox, sandbox_id)
        assert row.backend is not None
        assert row.backend_sandbox_id is not None
        await self.components.backends[row.backend].kill(row.backend_sandbox_id)
        async with self.components.sessions.begin() as session:
            await JobRepository(session).due(DRIFT_CHECK, row.backend)

    async def sandboxes_of(self, task_id: str) -> list[str]:
        """List all sandboxes that were created for a task."""
        params = {"metadata.task": task_id, "state": list(SandboxState)}
        answer = await self.api.get("/v1/sandboxes", params=params)
        return [row["id"] for row in answer.json()["items"]]

    async def sandbox_state(self, sandbox_id: str) -> str:
        return str((await self.get(f"/v1/sandboxes/{sandbox_id}"))["state"])

    async def events(self, **params: Any) -> list[dict[str, Any]]:
        page = await self.get("/v1/events", type="task.", limit=200, **params)
        found: list[dict[str, Any]] = page["items"]
        return found

    def subjects(self, world: ForgeWorld, branch: str) -> list[str]:
        """List the subjects of a branch at the forge, newest first, without those of main."""
        return self._git(world, "log", "--format=%s", f"main..{branch}").splitlines()

    def authors(self, world: ForgeWorld, branch: str) -> list[str]:
        """List the authors and committers of a branch."""
        said = self._git(world, "log", "--format=%an%n%cn", f"main..{branch}")
        return sorted({*said.splitlines()})

    def patches(self, world: ForgeWorld, branch: str) -> str:
        return self._git(world, "log", "--patch", f"main..{branch}")

    def contains(self, world: ForgeWorld, head: str, sha: str) -> bool:
        return sha in self._git(world, "rev-list", head).splitlines()

    def _git(self, world: ForgeWorld, *args: str) -> str:
        path = world.git.directory / f"{world.repository}.git"
        return str(git("-C", str(path), *args))

    def merge(self, world: ForgeWorld, number: int) -> None:
        """Merge a pull request as a person."""
        with world.github.owner as owner:
            path = f"/repos/{world.repository}/pulls/{number}"
            owner.put(f"{path}/merge", json={}).raise_for_status()

    async def look_at_pulls(self) -> None:
        """Make the jobs of all pull requests due, as webhooks do."""
        async with self.components.sessions.begin() as session:
            for pull in await session.scalars(select(PullRequest)):
                subject = f"{pull.repository_id}/{pull.number}"
                await JobRepository(session).due(PULL_REQUEST, subject)

    async def cancel_all(self) -> None:
        """End what a failed test has left, so that no sandbox outlives it."""
        page = await self.get("/v1/tasks")
        for task in page["items"]:
            if task["stage"] not in ENDED:
                await self.api.post(f"/v1/tasks/{task['id']}/cancel")
        for task in page["items"]:
            with suppress(AssertionError):
                await self.until(task["id"], *ENDED, timeout=30)
