"""From the request of a task until its agent runs, for a repository with a prepared snapshot."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.engine import Engine
from benchmarks.git_forge import REPOSITORY, run_git, serving
from benchmarks.server import started_server

_NAME = f"acme/{REPOSITORY.stem}"
_LIMIT = 180
_POLL_SECONDS = 0.25  # more often would take processor time from what is measured


async def task_starts(engine: Engine, *, behind: int, rounds: int) -> list[float]:
    """Prepare a snapshot of an older commit, then start tasks; returns the seconds of each, the first one included."""
    with _served_at(f"main~{behind}") as (repository, url):
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        async with started_server(engine, "--forge-hosts", origin) as server:
            await _prepare(server.client, origin)
            run_git(
                "update-ref",
                "refs/heads/main",
                run_git("rev-parse", "main", cwd=REPOSITORY),
                cwd=repository,
            )
            return [await _start(server.client) for _ in range(rounds)]


@contextmanager
def _served_at(revision: str) -> Iterator[tuple[Path, str]]:
    """Serve the repository with its main branch at an older commit."""
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-", dir="/var/tmp") as directory:
        repository = Path(directory) / REPOSITORY.name
        run_git("clone", "--quiet", "--bare", "--shared", str(REPOSITORY), str(repository))
        run_git("update-ref", "refs/heads/main", revision, cwd=repository)
        with serving(repository) as url:
            yield repository, url


async def _prepare(client: httpx.AsyncClient, origin: str) -> None:
    forge = {"kind": "git", "git_url": origin, "git_username": "git", "token": "any"}
    put = await client.put("/v1/forges/git", json=forge)
    assert put.is_success, put.text
    settings = {"template": "base", "max_open": 100}
    added = {"forge": "git", "full_name": _NAME, "settings": settings}
    repository = await _post(client, "/v1/repositories", added)
    path = f"/v1/repositories/{repository['id']}"
    await _post(client, f"{path}/prepare", None)
    found = await _read_until(client, path, lambda found: not found["preparing"])
    assert found["prepared_sha"] is not None, found["prepare_error"]


async def _start(client: httpx.AsyncClient) -> float:
    """Start a task; returns the seconds until the process of its agent, by the clock of this machine."""
    wanted = {"repository": _NAME, "instructions": "Wait.", "command": "sleep 600"}
    begun = datetime.now(UTC)
    task = await _post(client, "/v1/tasks", wanted)
    path = f"/v1/tasks/{task['id']}"
    runs = await _read_until(client, f"{path}/runs", _has_command)
    command = "/v1/sandboxes/{sandbox_id}/commands/{command_id}".format_map(runs["items"][0])
    started = datetime.fromisoformat((await _get(client, command))["started_at"])
    await _post(client, f"{path}/cancel", None)
    await _read_until(client, path, lambda found: found["state"] == "cancelled")
    return (started - begun).total_seconds()


def _has_command(runs: dict[str, Any]) -> bool:
    return any(run["command_id"] for run in runs["items"])


async def _read_until(
    client: httpx.AsyncClient, path: str, is_met: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    async with asyncio.timeout(_LIMIT):
        while not is_met(found := await _get(client, path)):  # noqa: ASYNC110 - a client's view
            await asyncio.sleep(_POLL_SECONDS)
    return found


async def _post(client: httpx.AsyncClient, path: str, body: Any) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def _get(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(path)).raise_for_status().json()
    return found
