"""A sandbox as users have it: made by a server in a process of its own, and reached by what that tells of it alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.server.support.server_process import ServerProcess

_LONGEST_S = 300


@dataclass(frozen=True)
class Served:
    """One sandbox, as its server told of it when it was made."""

    server: ServerProcess
    told: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.told["id"])

    @property
    def path(self) -> str:
        return f"/v1/sandboxes/{self.id}"

    @property
    def urls(self) -> dict[str, str]:
        urls: dict[str, str] = self.told["urls"]
        return urls

    @property
    def headers(self) -> dict[str, str]:
        return {"X-API-Key": self.server.admin_key}

    def ask(self, method: str, path: str = "", **options: Any) -> httpx.Response:
        """Ask the API for something of this sandbox, which has to succeed."""
        with httpx.Client(
            base_url=self.server.url, headers=self.headers, timeout=_LONGEST_S
        ) as caller:
            answer = caller.request(method, f"{self.path}{path}", **options)
        assert answer.is_success, answer.text
        return answer

    def write(self, path: str, content: str) -> None:
        self.ask("PUT", "/files/content", params={"path": path}, content=content.encode())

    def run(self, cmd: str) -> str:
        """Run a command line; gives what it wrote, on failure in the error."""
        done = self.ask("POST", "/commands", params={"wait": _LONGEST_S}, json={"cmd": cmd}).json()
        assert done["exit_code"] == 0, f"{cmd}: {done['stdout']}{done['stderr']}"
        return str(done["stdout"])

    def wait(self, condition: str) -> None:
        """Wait until a command line succeeds."""
        self.run(f"timeout 90 sh -c 'until {condition}; do sleep 0.25; done' >/dev/null 2>&1")

    def state(self) -> str:
        return str(self.ask("GET").json()["state"])


@contextmanager
def served_sandbox(server: ServerProcess, **wanted: Any) -> Iterator[Served]:
    """Have a server make a sandbox, which is there for as long as the block lasts."""
    headers = {"X-API-Key": server.admin_key}
    with httpx.Client(base_url=server.url, headers=headers, timeout=_LONGEST_S) as caller:
        made = caller.post("/v1/sandboxes", params={"wait": 60}, json=wanted)
        assert made.status_code == httpx.codes.CREATED, made.text
        sandbox = Served(server, made.json())
        try:
            yield sandbox
        finally:
            caller.delete(sandbox.path)
