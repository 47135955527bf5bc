import os
import subprocess
import tomllib
import zipfile

import httpx
import pytest

from tests.engine.engine_process import running_engine
from tests.release.installation import ROOT
from tests.server.support.server_process import server_process, variables_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("release"),  # one wheel and one installation for all
]

NOBODY = 65534


@pytest.fixture(scope="module")
def version():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def shipped(directory, target):
    """List what git knows in a directory, by its names in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", directory], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    existing = (one for one in listed if (ROOT / one).exists())
    return {f"{target}{one.removeprefix(directory)}" for one in existing}


@pytest.mark.parametrize(
    ("directory", "target"),
    [
        ("src/sandbox_client", "sandbox_client"),
        ("src/sandbox_engine", "sandbox_engine"),
        ("src/sandbox_server", "sandbox_server"),
        ("src/sandbox_tools", "sandbox_tools"),
        ("migrations", "sandbox_server/db/migrations"),
        ("templates", "sandbox_server/shipped/templates"),
        ("docker/sandbox", "sandbox_server/shipped/docker/sandbox"),
    ],
)
def test_wheel__contains_all_our_files(wheel, directory, target):
    with zipfile.ZipFile(wheel) as archive:
        assert shipped(directory, target) - set(archive.namelist()) == set()


def test_wheel__contains_third_party_files_of_the_page(wheel):
    vendor = ROOT / "src/sandbox_server/web/page/vendor"
    with zipfile.ZipFile(wheel) as archive:
        there = {f"sandbox_server/web/page/vendor/{file.name}" for file in vendor.glob("*")}
        assert there <= set(archive.namelist())
        assert there or not vendor.exists()


def test_wheel__contains_the_web_interface(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "sandbox_server/web/built/index.html" in names
    assert any(name.startswith("sandbox_server/web/built/assets/index-") for name in names)


def test_wheel__each_program_prints_the_projects_version(installation, wheel, version):
    assert f"-{version}-" in wheel.name
    for program in ("sandbox-server", "sandbox-engine"):
        assert installation.ask(program, "--version") == f"{program} {version}\n"


def test_wheel__templates_are_found_without_a_checkout(installation):
    code = "from sandbox_server.templates.bundled import read_bundled_templates; print(*read_bundled_templates().templates)"
    assert {"agent", "agent-full"} <= set(installation.ask("python", "-c", code).split())


@pytest.mark.needs_engine
def test_wheel__root_serves_from_an_empty_directory_with_its_own_engine_and_database(
    installation, version
):
    with server_process(copies_database=False) as server:
        server.program = [str(installation.program("sandbox-server"))]
        server.start()
        make_and_use_a_sandbox(server, version)
        assert server.stop() == 0


@pytest.mark.needs_engine
def test_wheel__an_ordinary_account_serves_from_an_empty_directory_with_its_own_database(
    installation, version
):
    with running_engine() as engine:
        variables = variables_of(engine, database_url="")
        with server_process(variables=variables) as server:
            server.program = [str(installation.program("sandbox-server"))]
            server.account = NOBODY
            os.chown(server.directory, NOBODY, NOBODY)
            server.start()
            make_and_use_a_sandbox(server, version)
            assert server.stop() == 0


def make_and_use_a_sandbox(server, version):
    with httpx.Client(
        base_url=server.url, headers={"X-API-Key": server.admin_key}, timeout=120
    ) as client:
        assert client.get("/version").json()["version"] == version
        made = client.post("/v1/sandboxes", json={"template": "base"})
        assert made.status_code == 201, made.text
        sandbox = f"/v1/sandboxes/{made.json()['id']}"
        ran = client.post(f"{sandbox}/commands", json={"cmd": "echo hello"})
        assert ran.json()["stdout"] == "hello\n"
        assert client.delete(sandbox).is_success
