"""Clients generated from the OpenAPI document compile and are typed."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from reference import snapshot

from tests.engine.engine_process import REPOSITORY
from tests.engine.node_packages import NODE, install

pytestmark = pytest.mark.slow

OPENAPI_TYPESCRIPT = "7.13.0"
OPENAPI_PYTHON_CLIENT = "0.29.1"

TYPESCRIPT_USE = """
import type { operations } from "./api";
type Made = operations["create_sandbox"]["responses"][201]["content"]["application/json"];
type Problem = operations["create_sandbox"]["responses"][429]["content"]["application/problem+json"];
export const state = (made: Made): "running" | "queued" | string => made.state;
export const code = (problem: Problem): string => problem.code;
export const wait: operations["run_command"]["parameters"]["query"] = { wait: 60 };
// @ts-expect-error: the type is known, and this is no field of it
export const wrong = (made: Made) => made.stat;
"""
PYTHON_USE = """
from generated import AuthenticatedClient
from generated.api.commands import run_command
from generated.api.sandboxes import create_sandbox
from generated.models import CommandCreate, CommandOutcome, SandboxCreate, SandboxRead


def use(client: AuthenticatedClient) -> str:
    made = create_sandbox.sync(client=client, body=SandboxCreate(template="base"))
    assert isinstance(made, SandboxRead)
    ended = run_command.sync(made.id, client=client, body=CommandCreate(cmd="true"))
    assert isinstance(ended, CommandOutcome)
    return ended.stdout
"""
# The generator does not know the type of binary bodies.
PYTHON_CONFIG = """
package_name_override: generated
content_type_overrides:
  application/x-tar: application/octet-stream
  application/gzip: application/octet-stream
"""


@pytest.fixture(scope="module")
def generator():
    """Install the Python generator in a separate environment, or skip if pip cannot fetch it."""
    place = REPOSITORY / ".cache" / f"openapi-python-client-{OPENAPI_PYTHON_CLIENT}"
    if not (place / "ready").exists():
        venv.create(place, with_pip=True, clear=True)
        pip = [str(place / "bin/python"), "-m", "pip", "install", "--quiet", "--retries", "1"]
        wanted = f"openapi-python-client=={OPENAPI_PYTHON_CLIENT}"
        try:
            subprocess.run([*pip, wanted], check=True, capture_output=True, timeout=60)
        except subprocess.SubprocessError as error:
            shutil.rmtree(place)
            pytest.skip(f"pip cannot install {wanted} here: {error}")
        (place / "ready").touch()
    return place / "bin"


def run(*command: str | Path, cwd: Path) -> str:
    finished = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    said = finished.stdout + finished.stderr
    assert finished.returncode == 0, said
    return said


def test_openapi__a_generated_typescript_client_compiles(tmp_path):
    modules = install("openapi-typescript", OPENAPI_TYPESCRIPT)
    generate = modules / "openapi-typescript/bin/cli.js"
    run(NODE, generate, snapshot.FILE, "--output", "api.ts", cwd=tmp_path)
    (tmp_path / "use.ts").write_text(TYPESCRIPT_USE)
    compiler = modules / "typescript/bin/tsc"
    run(NODE, compiler, "--strict", "--noEmit", "api.ts", "use.ts", cwd=tmp_path)


def test_openapi__a_generated_python_client_is_complete_and_typed(generator, tmp_path):
    (tmp_path / "config.yaml").write_text(PYTHON_CONFIG)
    said = run(
        *(generator / "openapi-python-client", "generate", "--path", snapshot.FILE),
        *("--meta", "none", "--output-path", "generated", "--config", "config.yaml"),
        cwd=tmp_path,
    )
    assert "WARNING" not in said
    (tmp_path / "use.py").write_text(PYTHON_USE)
    checked = ("--strict", "--python-executable", generator / "python", "generated", "use.py")
    run(sys.executable, "-m", "mypy", *checked, cwd=tmp_path)
