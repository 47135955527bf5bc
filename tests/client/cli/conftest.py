import os
import subprocess
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox_client import AsyncSandboxClient
from sandbox_client.protocol.address import API_KEY, CONFIG, URL
from tests.client.terminal_user import TerminalUser

SBX = Path(sys.executable).parent / "sbx"
NAME = "workshop"


@pytest.fixture
def home(tmp_path):
    """Give the person at this machine a home of their own."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def variables(server, home):
    """Say where the server is, and nothing else that matters to sbx."""
    ours = ("SANDBOX_SERVER_", "XDG_", "BROWSER", "DISPLAY", "NO_COLOR")
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    said = {URL: server.url, API_KEY: server.admin_key, CONFIG: str(home / "client.toml")}
    return {**inherited, "HOME": str(home), **said}


@pytest.fixture
def start(variables, tmp_path):
    """Start sbx, with pipes to it."""

    def start(*words, env=None):
        return subprocess.Popen(
            [SBX, *words],
            env={**variables, **(env or {})},
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return start


@pytest.fixture
def sbx(start):
    """Run sbx to its end; its output is text where it can be."""

    def sbx(*words, stdin=b"", **options):
        with start(*words, **options) as process:
            stdout, stderr = process.communicate(stdin, timeout=120)
        return subprocess.CompletedProcess(
            words, process.returncode, _text(stdout), stderr.decode()
        )

    return sbx


@pytest.fixture
def sit(variables, tmp_path):
    """Have a person run sbx in a terminal."""

    def sit(*words, env=None):
        return TerminalUser([str(SBX), *words], cwd=tmp_path, env={**variables, **(env or {})})

    return sit


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared(server):
    """Make a sandbox that tests leave running."""
    async with (
        AsyncSandboxClient(server.url, server.admin_key) as client,
        await client.create_sandbox(template="base", metadata={"name": NAME}) as sandbox,
    ):
        yield sandbox


@pytest.fixture
def web(shared):
    """Name the sandbox that tests share."""
    return shared.id


def _text(content):
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
