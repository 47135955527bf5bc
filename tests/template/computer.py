"""A sandbox of a template, as its server treats it and as those in it use it."""

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import httpx
from e2b import CommandExitException, Sandbox

from tests.engine.engine_process import ConnectionOptions

# As the server replaces it: by root, in one step, for `user` alone.
_WRITE = "umask 077; cd /etc/sandbox; cat >tools.new; chown user tools.new; mv tools.new tools.json"


@dataclass
class Computer:
    """One sandbox, and what its services were told."""

    sandbox: Sandbox
    options: ConnectionOptions
    token: str = ""
    password: str = ""
    told: dict[str, Any] = field(default_factory=dict)

    def run(
        self, script: str, *, user: str | None = None, timeout: float = 120, **envs: str
    ) -> str:
        """Run a command line; gives what it wrote, on failure in the error."""
        try:
            done = self.sandbox.commands.run(
                script, user=user, envs=envs, timeout=timeout, request_timeout=timeout + 30
            )
        except CommandExitException as error:
            raise AssertionError(f"{script}: {error}: {error.stdout}{error.stderr}") from error
        return done.stdout

    def settle(self, **settings: Any) -> None:
        """Give its services settings of their own, which are others each time."""
        self.token, self.password = secrets.token_hex(16), secrets.token_hex(16)
        self.told = {"token": self.token, "password": self.password, **settings}
        self.sandbox.files.write("/tmp/told.json", json.dumps(self.told), user="root")
        self.run(f"( {_WRITE} ) </tmp/told.json; rm /tmp/told.json", user="root")

    def wait(self, condition: str, *, seconds: int = 90) -> str:
        """Wait until a command line succeeds; gives what it wrote then."""
        return self.run(
            f"for _ in $(seq {seconds * 4}); do {{ {condition}; }} && exit; sleep 0.25; done; "
            "tail -n 20 /var/log/sandbox/*.log >&2; exit 1",
            timeout=seconds * 4,
        )

    def url(self, port: int) -> str:
        """Tell where browsers find one of its ports."""
        return f"http://{self.host(port)}"

    def get(self, port: int, path: str) -> httpx.Response:
        """Ask one of its ports from outside."""
        headers = {"Host": self.host(port)}
        return httpx.get(f"{self.options['sandbox_url']}{path}", headers=headers, timeout=30)

    def listener(self, port: int) -> str:
        """Name the process that listens there."""
        return self.run(
            f"ss -Hltnp 'sport = :{port}' | grep -o 'pid=[0-9]*' | head -n 1 | cut -d= -f2"
        ).strip()

    def host(self, port: int) -> str:
        """Name one of its ports as callers from outside do."""
        address = self.options["sandbox_url"].rpartition(":")[2]
        return f"{port}-{self.sandbox.sandbox_id}.localhost:{address}"
