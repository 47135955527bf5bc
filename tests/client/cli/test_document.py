"""docs/sbx.md, as somebody would type it who reads it from top to bottom."""

import subprocess

import pytest

from tests.client.cli.conftest import SBX
from tests.docs.blocks import REPOSITORY, blocks_of, to_run

DOCUMENT = REPOSITORY / "docs/sbx.md"


@pytest.mark.needs_engine
@pytest.mark.slow  # starts sbx for each command of the page; the tests beside it have each command
def test_sbx_document__examples_work(server, variables, tmp_path):
    script = "".join(block.code for block in to_run(blocks_of(DOCUMENT)))
    (tmp_path / "key.txt").write_text(f"{server.admin_key}\n")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("http://127.0.0.1:8100", server.url)],
        env={**variables, "PATH": f"{SBX.parent}:{variables['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.startswith("42\n1\n2\n3\n")
    assert (tmp_path / "notes.txt").read_text() == f"{server.admin_key}\n"
    assert (tmp_path / "apt" / "sources.list.d").is_dir()
    assert "begun\ndone\n" in done.stdout


def test_sbx_document__mentions_every_subcommand():
    verbs = subprocess.run([SBX, "--help"], capture_output=True, text=True, check=True).stdout
    listed = [
        line.split()[0]
        for line in verbs.splitlines()
        if line.startswith("    ") and line[4:5].strip()
    ]
    assert {"create", "workspace"} <= set(listed)
    text = DOCUMENT.read_text()
    assert [verb for verb in listed if f"sbx {verb}" not in text and f" {verb} " not in text] == []
