"""A real forge: Pagure of Debian, with its own git over HTTP, database, hooks and permissions."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.engine_process import REPOSITORY
from tests.ports import free_port

_DEBIAN = REPOSITORY / ".cache" / "test-programs" / "pagure"
_SERVER = Path(__file__).parent / "pagure_server.py"
_START = """
mount --bind "$2" "$1/mnt" && mount -t proc proc "$1/proc" &&
    exec env PAGURE_CONFIG=/mnt/pagure.cfg chroot "$1" python3 /mnt/pagure_server.py /mnt "$3" "$4" """
_SETTINGS = """
SECRET_KEY = SALT_EMAIL = "of-a-test"
DB_URL = "sqlite:////mnt/pagure.sqlite"
REDIS_SOCKET = "/mnt/redis.socket"
APP_URL = GIT_URL_GIT = "{url}/"
GIT_FOLDER = "/mnt/repositories"
REMOTE_GIT_FOLDER = "/mnt/remotes"
DOCS_FOLDER = TICKETS_FOLDER = REQUESTS_FOLDER = None
ENABLE_DOCS = ENABLE_TICKETS = EMAIL_SEND = False
GIT_AUTH_BACKEND = "pagure"
HTTP_REPO_ACCESS_GITOLITE = MAX_CONTENT_LENGTH = None
ALLOW_HTTP_PULL_PUSH = ALLOW_HTTP_PUSH = True
ALLOWED_PREFIX = ["acme"]
"""
_PATIENCE_S = 120
PERSON, AGENT = "ada", "agent"
_NO_NEW_BRANCHES = "Prevent creating new branches by git push"

needs_pagure = pytest.mark.skipif(
    not (_DEBIAN / "complete").exists() or os.geteuid() != 0,
    reason="run scripts/test-programs slow as root: Pagure is not there",
)


@dataclass(frozen=True)
class Pagure:
    """A Pagure that listens, with a token of each of its users."""

    url: str
    tokens: dict[str, str]

    def forge(self) -> dict[str, str]:
        """Describe it as `PUT /v1/forges/{name}` takes it, for the user of the agents."""
        return {
            "kind": "git",
            "git_url": self.url,
            "git_username": AGENT,
            "token": self.tokens[AGENT],
        }

    def add_project(self, name: str) -> str:
        """Make a project of the person, with a first commit; gives its full name."""
        self.post("/new", namespace="acme", name=name, description=name, create_readme=1, wait=1)
        return f"acme/{name}"

    def let_agent_push(self, project: str) -> None:
        self.post(f"/{project}/git/modifyacls", user_type="user", name=AGENT, acl="commit")

    def branches(self, project: str) -> dict[str, str]:
        """Find the branches with their commits."""
        found: dict[str, str] = self.get(f"/{project}/git/branches?with_commits=1")["branches"]
        return found

    def forbid_new_branches(self, project: str) -> None:
        self.post(f"/{project}/settings/{_NO_NEW_BRANCHES}/install")

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def post(self, path: str, **fields: Any) -> Any:
        return self._call("POST", path, data=fields)

    def _call(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"token {self.tokens[PERSON]}"}
        url = f"{self.url}/api/0{path}"
        answer = httpx.request(method, url, headers=headers, timeout=_PATIENCE_S, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def running_pagure(state: Path) -> Iterator[Pagure]:
    """Run it in a file system and a process namespace of its own, which end with it."""
    for folder in ("repositories", "remotes"):
        (state / folder).mkdir(parents=True)
    shutil.copy(_SERVER, state)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (state / "pagure.cfg").write_text(_SETTINGS.format(url=url))
    inside = ("sh", "-c", _START, "sh", str(_DEBIAN), str(state), str(port), f"{PERSON},{AGENT}")
    command = ("unshare", "--mount", "--pid", "--fork", "--kill-child", *inside)
    with (
        (state / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield Pagure(url, _tokens(state, process))
        finally:
            process.kill()


def _tokens(state: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Wait until it listens."""
    path, end = state / "tokens.json", time.monotonic() + _PATIENCE_S
    while not path.exists():
        assert process.poll() is None, (state / "log").read_text()
        assert time.monotonic() < end, (state / "log").read_text()
        time.sleep(0.1)
    found: dict[str, str] = json.loads(path.read_text())
    return found
