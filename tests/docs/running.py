import os
import subprocess
import sys
from pathlib import Path

from sandbox_server.supervisor.engine import LocalEngine
from tests.docs.blocks import script_of
from tests.server.support.server_process import ServerProcess

LONGEST_S = 400


def run_document(
    document: Path, server: ServerProcess, *, directory: Path
) -> subprocess.CompletedProcess[str]:
    """Run a document's code in a directory, with a sandbox in ID and the server's key in key.txt."""
    engine = LocalEngine(server.engine_dir).find_note()
    assert engine is not None
    replaced = {
        "http://127.0.0.1:8100": server.url,
        "localhost:8100": f"localhost:{server.url.rpartition(':')[2]}",
        "127.0.0.1:3400": f"127.0.0.1:{engine.port}",
        "sudo cat /var/lib/sandbox-server": f"cat {server.state_dir}",
    }
    (directory / "key.txt").write_text(f"{server.admin_key}\n")
    return subprocess.run(
        ["bash", "-c", script_of(document, replaced)],
        cwd=directory,
        env=_environment(server, home=directory),
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def _environment(server: ServerProcess, *, home: Path) -> dict[str, str]:
    return {
        **server.environment(),
        "SANDBOX_SERVER_STATE_DIR": str(server.state_dir),
        "SANDBOX_SERVER_URL": server.url,
        "SANDBOX_SERVER_API_KEY": server.admin_key,
        "SERVER": server.url,
        "KEY": server.admin_key,
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
