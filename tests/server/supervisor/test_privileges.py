import os
import shutil
import tempfile
from pathlib import Path

import httpx
import pytest
from e2b import Sandbox

import sandbox_server
from sandbox_server.supervisor import privileges

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give it up")

SOURCE = Path(sandbox_server.__file__).parents[1]


@pytest.fixture
def closed():
    """Make a directory like /root, with our programs in it, that only root may enter."""
    directory = Path(tempfile.mkdtemp(prefix="closed-"))
    (directory / "secret").write_text("root's own")
    clone = directory / "clone"
    ignored = shutil.ignore_patterns("__pycache__", "sandbox_engine")
    shutil.copytree(SOURCE, clone / "src", ignore=ignored)
    shutil.copytree(SOURCE.parent / "migrations", clone / "migrations", ignore=ignored)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.slow  # a start of another account, which cannot be forked
async def test_privileges__the_server_runs_from_a_directory_closed_to_its_account(server, closed):
    server.programs_at(closed / "clone" / "src")
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as anybody:
        assert (await anybody.get("/openapi.json")).status_code == 200
        assert (await anybody.get("/v1/nothing")).status_code == 401
    assert server.stop() == 0


def test_privileges__the_server_sees_only_our_programs_there(server, closed):
    server.programs_at(closed / "clone" / "src")
    server.start()
    (serving,) = server.children
    seen = Path(f"/proc/{serving}/root{closed}")
    assert [found.name for found in seen.iterdir()] == ["clone"]
    assert {found.name for found in (seen / "clone").iterdir()} == {"src", "migrations"}
    with pytest.raises(OSError, match="Read-only"):
        (seen / "clone" / "src" / "forged").touch()
    assert (closed / "secret").read_text() == "root's own"  # only its own view is another


@pytest.mark.needs_engine
def test_privileges__the_serving_process_keeps_no_sandbox_disk_in_use(server, closed, options):
    server.programs_at(closed / "clone" / "src")
    with Sandbox.create(timeout=120, **options) as sandbox:
        server.start()
        (serving,) = server.children
        held = Path(f"/proc/{serving}/mounts").read_text()
        assert sandbox.sandbox_id in Path("/proc/mounts").read_text()
        assert sandbox.sandbox_id not in held
        assert sandbox.commands.run("echo still").stdout == "still\n"


@pytest.mark.slow  # a start of another account, which cannot be forked
def test_privileges__programs_that_the_account_cannot_read_are_named(server, closed):
    (closed / "clone" / "src").chmod(0o700)
    server.programs_at(closed / "clone" / "src")
    refused = server.run("serve", "--port", "0")
    assert refused.returncode != 0
    assert f"chmod -R go+rX {closed / 'clone' / 'src'}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_privileges__a_disk_that_the_engine_removes_meanwhile_does_not_keep_a_server_from_starting(
    tmp_path,
):
    privileges._unmount(str(tmp_path / "gone"))
    privileges._unmount(str(tmp_path))  # there, but not mounted any more
