import os
import subprocess
import sys

import pytest

from sandbox_client import AsyncSandboxClient

COMMAND = [sys.executable, "-m", "sandbox_client.workspace"]


@pytest.fixture
async def client(server):
    async with AsyncSandboxClient(server.url, server.admin_key) as client:
        yield client


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give the person at this machine a home of their own."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def project(tmp_path, home):
    """Make a directory with a repository of git in it."""
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "--quiet", "--initial-branch", "main")
    git(project, "config", "user.name", "A person")
    git(project, "config", "user.email", "person@example.org")
    (project / "app.py").write_text("print('one')\n")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message", "Begin")
    return project


@pytest.fixture
def run(server, project, home, monkeypatch):
    """Run the command to its end, without a terminal."""
    monkeypatch.setenv("SANDBOX_SERVER_URL", server.url)
    monkeypatch.setenv("SANDBOX_SERVER_API_KEY", server.admin_key)

    def run(*words, cwd=project):
        return subprocess.run(
            [*COMMAND, *words],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    yield run
    run("delete", str(project), "--force", cwd=project.parent)


def git(directory, *words):
    """Run git as the person does; gives what it said."""
    done = subprocess.run(
        ["git", "-C", str(directory), *words],
        env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()
