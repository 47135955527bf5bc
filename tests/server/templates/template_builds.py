from dataclasses import dataclass
from typing import Any

import httpx

from tests.engine.polling import until
from tests.server.support.in_process_server import Serving

LONGEST_S = 120


@dataclass(frozen=True)
class Building:
    """Templates built through the API of a running server."""

    api: httpx.AsyncClient
    server: Serving

    async def ask(self, name: str = "own", **fields: Any) -> dict[str, Any]:
        """Request a template based on the engine's own, with one more step."""
        if not fields.keys() & {"dockerfile", "from_image"}:
            fields.setdefault("from_template", "base")
        answer = await self.api.post("/v1/templates", json={"name": name, **fields})
        assert answer.status_code == 202, answer.text
        return self._told(answer)

    async def again(self, name: str = "own", **fields: Any) -> dict[str, Any]:
        answer = await self.api.post(f"/v1/templates/{name}/builds", json=fields)
        assert answer.status_code == 202, answer.text
        return self._told(answer)

    async def build(self, name: str = "own", **fields: Any) -> dict[str, Any]:
        """Build a template and wait until it is ready."""
        await self.ask(name, **fields)
        return await self.settled("ready", name)

    async def settled(self, state: str, name: str = "own") -> dict[str, Any]:
        """Wait until the build has ended with this state."""

        async def is_over() -> bool:
            state: str = (await self.told(name))["state"]
            return state != "building"

        await until(is_over, timeout=LONGEST_S)
        told = await self.told(name)
        assert told["state"] == state, told
        return told

    async def told(self, name: str = "own", **query: Any) -> dict[str, Any]:
        answer = await self.api.get(f"/v1/templates/{name}/builds/local", params=query)
        assert answer.status_code == 200, answer.text
        return self._told(answer)

    async def has_said(self, text: str, name: str = "own") -> bool:
        said: str = (await self.told(name))["log"]
        return text in said

    async def said_in_sandbox(self, command: str, template: str = "own", **fields: Any) -> str:
        """Run a command in a new sandbox of the template."""
        row = await self.server.running(template=template, **fields)
        inside = await self.server.living.inside(row.id)
        result = await inside.commands.run(command)
        await self.server.controller.delete(self.server.caller, row.id)
        return result.stdout.strip()

    def _told(self, answer: httpx.Response) -> dict[str, Any]:
        told: dict[str, Any] = answer.json()
        return told
