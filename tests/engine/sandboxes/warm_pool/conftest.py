import json
import secrets
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from e2b import AsyncTemplate, wait_for_port

from tests.engine.engine_process import EngineProcess, running_engine
from tests.engine.polling import until

PORT = 8000
SERVER = f'echo "$GREETING $NAME" >> ~/told-$E2B_SANDBOX_ID; exec python3 -m http.server {PORT}'


WANTED = "wanted-always"


@dataclass(frozen=True)
class WarmPool:
    """What is ready in an engine, as its API and its records tell."""

    engine: EngineProcess

    def ids(self, template: str = "base") -> set[str]:
        """Read which sandboxes of a template wait for somebody."""
        return {record["id"] for record in self.waiting(template)}

    def waiting(self, template: str = "base") -> list[dict[str, Any]]:
        return [
            record
            for record in self.records()
            if record["state"] == "reserved" and template == record["template_name"]
        ]

    def records(self) -> list[dict[str, Any]]:
        found = (self.engine.state_dir / "sandboxes").glob("*/record.json")
        return [json.loads(path.read_text()) for path in found]

    async def level(self, template: str = "base") -> dict[str, Any]:
        """Ask what the engine says of one template."""
        headers = {"X-API-Key": self.engine.api_key}
        async with httpx.AsyncClient(base_url=self.engine.url, timeout=60) as client:
            answer = (await client.get("/ready-sandboxes", headers=headers)).raise_for_status()
        found = [one for one in answer.json() if template == one["alias"]]
        return found[0] if found else {}

    async def wait_full(self, template: str = "base") -> set[str]:
        """Wait until as many are ready as are wanted; gives their ids."""

        async def is_full() -> bool:
            level = await self.level(template)
            return bool(level) and level["ready"] == level["wanted"] > 0

        await until(is_full, timeout=60)
        return self.ids(template)


@pytest.fixture(scope="module")
def ready_engine():
    """Run an engine that keeps two sandboxes of each template ready; tests may kill it."""
    flags = ("--ready-sandboxes", "2", "--ready-memory-mb", "16384", "--pool-size", "2")
    with running_engine(*flags, "--ready-templates", WANTED) as engine:
        yield engine


@pytest.fixture
def ready_options(ready_engine):
    return ready_engine.options


@pytest.fixture
async def reserve(ready_engine):
    """Look at what is ready, once something is."""
    reserve = WarmPool(ready_engine)
    await reserve.wait_full()
    return reserve


@pytest.fixture
def name():
    """Make up a template's name of the test's own."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
def build_server():
    """Build a template whose start command serves its files, and says in one what it was given."""

    async def build(name, options, *, greeting="hello"):
        template = AsyncTemplate().from_base_image().set_envs({"GREETING": greeting})
        serving = template.set_start_cmd(SERVER, wait_for_port(PORT))
        return await AsyncTemplate.build(serving, name, **options)

    return build
