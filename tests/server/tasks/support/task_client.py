"""What tests of tasks do through the API."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from sandbox_server.components import Components

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

    async def until(self, task_id: str, *stages: str, timeout: float = WAIT) -> dict[str, Any]:
        """Wait until a task is in one of these stages; another end of it fails the test."""
        last: dict[str, Any] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    last = await self.task(task_id)
                    if last["stage"] in stages:
                        return last
                    if last["stage"] in ENDED | {"waiting-for-user"}:
                        break
                    await asyncio.sleep(0.1)
        raise AssertionError(f"{last['stage']}: {last['stage_reason']}")

    async def cancel_all(self) -> None:
        """End what a failed test has left, so that no sandbox outlives it."""
        page = await self.get("/v1/tasks")
        for task in page["items"]:
            if task["stage"] not in ENDED:
                await self.api.post(f"/v1/tasks/{task['id']}/cancel")
        for task in page["items"]:
            with suppress(AssertionError):
                await self.until(task["id"], *ENDED, timeout=30)
