"""The engine's guard as a server that is not root has it: a process of its own, told what to do by pipes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_server.supervisor.engine import LocalEngine
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.process_handle import ProcessHandle
from sandbox_server.supervisor.sudo_guard import COMMAND, guard_with_sudo
from tests.engine import leftovers
from tests.engine.engine_process import IMAGES
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

SERVER = "http://127.0.0.1:3999"


@pytest.fixture(autouse=True)
def sudo(tmp_path, monkeypatch):
    """Have a `sudo` that only does what it is told, since tests are root already."""
    program = tmp_path / "bin" / "sudo"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("SANDBOX_ENGINE_IMAGES_DIR", str(IMAGES))
    monkeypatch.setenv("SANDBOX_ENGINE_READY_SANDBOXES", "0")
    return program


@pytest.fixture
def directory(tmp_path):
    """Make a place for an engine, which is gone afterwards."""
    directory = tmp_path / "engine"
    yield directory
    if (engine := find_engine(directory)) is not None:
        os.kill(engine.identity.pid, signal.SIGKILL)
    if directory.exists():
        reset = [sys.executable, "-m", "sandbox_engine", "reset", "--state-dir", str(directory)]
        subprocess.run(reset, check=True, capture_output=True, timeout=120)


def find_engine(directory):
    note = LocalEngine(directory).find_note()
    return None if note is None else ProcessHandle.find(note.identity)


@pytest.fixture
def left(directory):
    return leftovers.EngineAt(directory)


def guard_process(directory, **variables):
    """Start the guard as `sudo` does."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "sandbox_server", COMMAND),
            *("--directory", str(directory), "--server-url", SERVER),
        ],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_sudo_guard__a_finished_server_stops_the_engine(directory):
    with guard_with_sudo(directory, server_url=SERVER) as (address, link):
        assert (directory / "git-server").read_text() == SERVER
        assert link.confirm_start()
        assert address.api_key == (directory / "api.key").read_text().strip()
        assert find_engine(directory) is not None
        assert link.stop_engine()
        assert find_engine(directory) is None


@pytest.mark.parametrize(("given", "kept_ready"), [(None, "agent"), ("mine", "mine")])
@pytest.mark.slow  # an engine for each setting
def test_sudo_guard__the_default_template_is_kept_ready_unless_configured(
    directory, monkeypatch, given, kept_ready
):
    if given is not None:
        monkeypatch.setenv("SANDBOX_ENGINE_READY_TEMPLATES", given)
    with guard_with_sudo(directory, server_url=SERVER):
        engine = find_engine(directory)
        assert engine is not None
        known = Path(f"/proc/{engine.identity.pid}/environ").read_text().split("\0")
    assert f"SANDBOX_ENGINE_READY_TEMPLATES={kept_ready}" in known


async def test_sudo_guard__a_failed_start_leaves_no_engine(directory, left):
    with guard_with_sudo(directory, server_url=SERVER):
        assert find_engine(directory) is not None
    assert find_engine(directory) is None
    await leftovers.nothing(left)


@pytest.mark.slow  # one more end of the pair; each starts engines of its own
async def test_sudo_guard__a_server_killed_during_its_start_leaves_no_engine(
    directory, left, tmp_path
):
    with guard_process(directory, SANDBOX_ENGINE_IMAGES_DIR=str(tmp_path / "images")) as guard:
        assert next(line for line in guard.stderr if "base image: " in line)
        guard.stdin.close()  # as the kernel does with those of a server that was killed
        assert guard.wait(60) == 0
    assert find_engine(directory) is None
    await leftovers.nothing(left)


@pytest.mark.slow  # one more end of the pair; each starts engines of its own
def test_sudo_guard__an_unconfirmed_engine_is_not_adopted(directory):
    with guard_process(directory) as guard:
        assert "api_key" in guard.stdout.readline()
        first = find_engine(directory).identity
        guard.kill()
    with guard_with_sudo(directory, server_url=SERVER) as (_, link):
        assert find_engine(directory).identity != first
        assert link.confirm_start()
        assert link.stop_engine()


@pytest.mark.slow  # crashed server and engine; `test_engine` has them
def test_sudo_guard__a_crashed_server_leaves_the_engine_to_the_next(directory):
    with guard_with_sudo(directory, server_url=SERVER) as (first, link):
        assert link.confirm_start()
    engine = find_engine(directory)
    assert engine is not None
    with guard_with_sudo(directory, server_url=SERVER) as (second, _):
        assert second == first
        assert find_engine(directory).identity == engine.identity


@pytest.mark.slow  # crashed server and engine; `test_engine` has them
async def test_sudo_guard__restarts_an_engine_that_died(directory):
    with guard_with_sudo(directory, server_url=SERVER) as (_, link):
        assert link.confirm_start()
        before = find_engine(directory).identity
        os.kill(before.pid, signal.SIGKILL)

        async def is_another():
            found = find_engine(directory)
            return found is not None and found.identity != before

        await until(is_another, timeout=60)
        assert link.stop_engine()
        assert find_engine(directory) is None


def test_sudo_guard__missing_requirements_of_the_engine_are_printed(directory, monkeypatch):
    with monkeypatch.context() as lacking:
        lacking.setenv("SANDBOX_ENGINE_RUNTIME", "no-such-runtime")
        with pytest.raises(CannotServe, match="no-such-runtime: not found"):
            guard_with_sudo(directory, server_url=SERVER).__enter__()


def test_sudo_guard__without_sudo_the_alternatives_are_named(directory, monkeypatch, tmp_path):
    with monkeypatch.context() as lacking:
        lacking.setenv("PATH", str(tmp_path))
        with pytest.raises(CannotServe, match="Start the server as root"):
            guard_with_sudo(directory, server_url=SERVER).__enter__()
