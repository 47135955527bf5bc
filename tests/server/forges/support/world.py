"""A forge as a whole: an emulated GitHub, a git server that it follows, and the repository `acme/widgets`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.server.forges.support.git_server import (
    GitAccessOf,
    GitServer,
    git,
    running_git_server,
)
from tests.server.forges.support.github_emulator import (
    REPOSITORY,
    GithubEmulator,
    emulated_github,
)

FILES = {
    "README.md": "# Widgets\n",
    "src/widgets.py": "def count():\n    return 1\n",
    "tests/test_widgets.py": "from src.widgets import count\n\n\ndef test_count():\n    assert count() == 1\n",
    ".github/workflows/ci.yml": "on: push\n",
    "AGENTS.md": "Keep it small.\n",
}


@dataclass
class ForgeWorld:
    """What the server reaches as its forge."""

    github: GithubEmulator
    git: GitServer
    directory: Path
    repository: str = REPOSITORY
    clones: int = field(default=0, repr=False)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The value of `--forge-hosts`."""
        return (self.github.url, self.git.url)

    @property
    def app(self) -> dict[str, Any]:
        """The body of `PUT /v1/forges/{name}` for the App that is installed in the repository."""
        return {**self.github.app, "git_url": self.git.url}

    @property
    def token(self) -> dict[str, Any]:
        """The body of `PUT /v1/forges/{name}` for the owner's token."""
        return {
            "kind": "github",
            "api_url": self.github.url,
            "git_url": self.git.url,
            "token": self.github.owner_token,
            "webhook_secret": self.github.app["webhook_secret"],
        }

    def head(self, ref: str = "main") -> str | None:
        return self.git.head(self.repository, ref)

    def open_issue(
        self, title: str = "Count is wrong", body: str = "It should be 2.", **fields: Any
    ) -> int:
        """Open an issue as a person; gives its number."""
        with self.github.owner as owner:
            answer = owner.post(
                f"/repos/{self.repository}/issues", json={"title": title, "body": body, **fields}
            )
        number: int = answer.raise_for_status().json()["number"]
        return number

    def list_pulls(self, **params: str) -> list[dict[str, Any]]:
        with self.github.owner as owner:
            answer = owner.get(f"/repos/{self.repository}/pulls", params={"state": "all", **params})
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found

    def push(
        self,
        files: Mapping[str, str],
        *,
        branch: str = "main",
        message: str = "Change files",
        force: bool = False,
        repository: str | None = None,
    ) -> str:
        """Commit files onto a branch, which is made from main if it is new, and push it as a person; gives the commit."""
        self.clones += 1
        clone = self.directory / f"clone-{self.clones}"
        url = self.git.url_of(repository or self.repository, self.github.owner_token)
        git("clone", "--quiet", url, str(clone))
        there = ("-C", str(clone))
        is_known = git(*there, "rev-parse", "--verify", "--quiet", f"origin/{branch}", check=False)
        git(
            *there,
            "switch",
            "--quiet",
            *(() if is_known else ("-c",)),
            branch,
            check=bool(is_known) or branch != "main",
        )
        for path, content in files.items():
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            (clone / path).write_text(content)
        git(*there, "add", "--all")
        git(*there, "commit", "--quiet", "--message", message)
        git(
            *there,
            "push",
            "--quiet",
            *(("--force",) if force else ()),
            "origin",
            f"HEAD:refs/heads/{branch}",
        )
        return git(*there, "rev-parse", "HEAD")


@contextmanager
def forge_world_at(control_port: int, directory: Path, **app: Any) -> Iterator[ForgeWorld]:
    """Make a forge of a test's own."""
    with emulated_github(control_port, **app) as github:

        def judge(token: str | None, repository: str) -> GitAccessOf:
            document = {"token": token or "", "repository": repository}
            answer = httpx.post(f"{github.url}/_world/access", json=document, timeout=20)
            return GitAccessOf(**answer.json())

        repositories = directory / "repositories"
        repositories.mkdir(parents=True)
        envs = {"MIRROR_URL": github.url, "MIRROR_TOKEN": github.owner_token}
        with running_git_server(repositories, judge, envs=envs) as server:
            server.add_repository(REPOSITORY)
            world = ForgeWorld(github=github, git=server, directory=directory)
            world.push(FILES, message="Start")
            github.settle()
            yield world
