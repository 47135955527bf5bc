"""A relative path names the same file for commands, terminals and every interface to files."""

import asyncio
import io
import secrets
import subprocess
import tarfile
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from sandbox_client import AsyncSandboxClient, SandboxClient
from sandbox_client.errors import PathNotFound
from sandbox_client.events import FileChange
from sandbox_client.langchain import basic_tools
from tests.client.cli.conftest import SBX

pytestmark = pytest.mark.needs_engine

LONGEST_S = 20


@dataclass(frozen=True)
class Location:
    """A sandbox, one of its users, and where that user's commands start."""

    sandbox_id: str
    user: str | None
    directory: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_ids(server):
    """Make a sandbox of a template with a working directory, and one of a template without."""
    name = f"at-work-{secrets.token_hex(4)}"
    async with AsyncSandboxClient(server.url, server.admin_key) as client:
        steps = [{"workdir": "/workspace"}]
        await client.create_template(name, from_template="base", steps=steps)
        made = [await client.create_sandbox(template=one) for one in (name, "base")]
        yield {"workspace": made[0].id, "base": made[1].id}
        for sandbox in made:
            await sandbox.delete()


@pytest.fixture(
    params=[
        ("workspace", None, "/workspace"),
        ("workspace", "root", "/workspace"),
        ("base", None, "/home/user"),
        ("base", "root", "/root"),
    ],
    ids=["user of workspace", "root of workspace", "user of base", "root of base"],
)
def place(request, sandbox_ids):
    template, user, directory = request.param
    return Location(sandbox_ids[template], user, directory)


@pytest.fixture
async def client(server):
    async with AsyncSandboxClient(server.url, server.admin_key) as client:
        yield client


@pytest.fixture
async def sandbox(client, place):
    return await client.get_sandbox(place.sandbox_id)


@pytest.fixture
def files(sandbox, place):
    return sandbox.files if place.user is None else sandbox.files.as_user(place.user)


@pytest.fixture
async def run(sandbox, place):
    """Run commands as the place's user, in the default directory."""

    async def run(line, **options):
        done = await sandbox.run(line, user=place.user, check=True, **options)
        return done.stdout

    return run


@pytest.fixture
async def api(server):
    headers = {"X-API-Key": server.admin_key}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as api:
        yield api


@pytest.fixture
def name():
    return f"it-{secrets.token_hex(4)}"


async def test_working_directory__commands_start_in_it(run, place):
    assert await run("pwd") == f"{place.directory}\n"


async def test_working_directory__files_and_commands_agree(files, run, place, name):
    await files.write(f"new/{name}", "by the client")
    assert await run(f"cat new/{name}") == "by the client"
    assert await run(f"cat {place.directory}/new/{name}") == "by the client"
    assert await run(f"rm new/{name}; echo by a command >{name}") == ""
    assert await files.read_text(name) == "by a command\n"
    assert await files.read(name, offset=3, limit=1) == b"a"
    found = await files.stat(name)
    await files.write(name, "again", if_match=found.etag)
    assert await run(f"cat {name}") == "again"
    assert not await files.exists(f"new/{name}")


async def test_working_directory__listed_paths_are_absolute(files, run, place, name):
    made = await files.mkdir(name)
    assert made.path == f"{place.directory}/{name}"
    await run(f"touch {name}/old")
    moved = await files.move(f"{name}/old", f"{name}/new")
    assert moved.path == f"{place.directory}/{name}/new"
    assert [entry.path async for entry in files.list(name)] == [moved.path]
    assert made.path in [entry.path async for entry in files.list()]
    await files.delete(name, recursive=True)
    assert await run(f"ls -d {name} 2>&1 || true") != f"{name}\n"


async def test_working_directory__paths_with_dot_dot(files, run, place, name):
    await files.write(f"../../../..{place.directory}/{name}", "around")
    assert await run(f"cat {name}") == "around"
    await files.write(f"{name}-dir/../{name}", "inside")
    assert await run(f"cat {name}; ls -d {name}-dir 2>/dev/null || true") == "inside"
    assert await files.read_text(f"./{name}/../{name}") == "inside"


async def test_working_directory__tilde_is_the_users_home(files, run, name):
    await files.write(f"~/{name}", "at home")
    assert await run(f"cat ~/{name}") == "at home"


async def test_working_directory__archives(files, run, name, tmp_path):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        packed.addfile(tarfile.TarInfo("member"), io.BytesIO())
    await files.unpack(name, archive.getvalue())
    assert await run(f"ls {name}") == "member\n"
    await files.pack(name, tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as packed:
        assert "./member" in packed.getnames()


async def test_working_directory__watch(files, run, name):
    events = files.watch()
    seen = asyncio.create_task(anext(events))
    async with asyncio.timeout(LONGEST_S):
        while not seen.done():  # the watch may begin after a change
            await run(f"touch {name}")
    assert isinstance(await seen, FileChange)
    assert (await seen).path == name
    await events.aclose()


async def test_working_directory__relative_cwd_of_a_command(files, run, place, name):
    await files.mkdir(name)
    assert await run("pwd", cwd=name) == f"{place.directory}/{name}\n"
    assert await run("pwd", cwd=f"{name}/..") == f"{place.directory}\n"
    assert await run("pwd", cwd=".") == f"{place.directory}\n"


async def test_working_directory__terminals_start_in_it(client, place, name, files):
    sandbox = await client.get_sandbox(place.sandbox_id)
    await files.mkdir(name)
    for cwd, shown in ((None, place.directory), (name, f"{place.directory}/{name}")):
        terminal = await sandbox.open_terminal(cmd="pwd", cwd=cwd, user=place.user)
        output = b"".join([part async for part in terminal if isinstance(part, bytes)])
        assert output.decode() == f"{shown}\r\n"


async def test_working_directory__is_the_default_of_listings(api, place, files, name):
    await files.write(name, "")
    url = f"/v1/sandboxes/{place.sandbox_id}/files"
    user = {} if place.user is None else {"user": place.user}
    for path in ({}, {"path": ""}, {"path": "."}):
        listed = await api.get(url, params={**user, **path})
        assert listed.status_code == 200, listed.text
        assert f"{place.directory}/{name}" in [one["path"] for one in listed.json()["items"]]
    put = await api.put(f"{url}/content", params={**user, "path": name}, content=b"put")
    assert put.status_code == 204
    got = await api.get(f"{url}/content", params={**user, "path": f"{place.directory}/{name}"})
    assert got.content == b"put"


def sbx(server, *words):
    environment = {"SANDBOX_SERVER_URL": server.url, "SANDBOX_SERVER_API_KEY": server.admin_key}
    return subprocess.run(
        [SBX, *words], env=environment, check=True, capture_output=True, text=True, timeout=60
    ).stdout


# sbx asks the server for the directory, as all others do: each case is eight starts of it.
@pytest.mark.parametrize(
    "place",
    [
        ("workspace", None, "/workspace"),
        pytest.param(("workspace", "root", "/workspace"), marks=pytest.mark.slow),
        pytest.param(("base", None, "/home/user"), marks=pytest.mark.slow),
        pytest.param(("base", "root", "/root"), marks=pytest.mark.slow),
    ],
    ids=["user of workspace", "root of workspace", "user of base", "root of base"],
    indirect=True,
)
async def test_working_directory__sbx_cp(server, run, place, name, tmp_path):
    user = [] if place.user is None else ["-u", place.user]
    (tmp_path / name).write_text("by sbx")
    (tmp_path / name).chmod(0o755)
    for target, said in (("", name), ("copy", "copy"), ("~/at-home", "~/at-home")):
        copy = ["cp", *user, str(tmp_path / name), f"{place.sandbox_id}:{target}"]
        await asyncio.to_thread(sbx, server, *copy)
        assert await run(f"cat {said}; test -x {said}") == "by sbx"
    copy = ["cp", *user, f"{place.sandbox_id}:{name}", "-"]
    assert await asyncio.to_thread(sbx, server, *copy) == "by sbx"
    shown = ["exec", *user, "-w", ".", place.sandbox_id, "--", "pwd"]
    assert await asyncio.to_thread(sbx, server, *shown) == f"{place.directory}\n"


@pytest.mark.parametrize(
    "place", [("workspace", None, "/workspace"), ("base", None, "/home/user")], indirect=True
)
async def test_working_directory__verbs(api, place, run, name):
    body = {"sandbox_id": place.sandbox_id, "path": name}
    written = await api.post("/sandboxes/write-file", json={**body, "content": "by a verb"})
    assert written.json() == {"path": name, "size": 9}
    assert await run(f"cat {name}") == "by a verb"
    assert (await api.post("/sandboxes/read-file", json=body)).json()["content"] == "by a verb"
    line = {"sandbox_id": place.sandbox_id, "command": f"cat {name}"}
    assert (await api.post("/sandboxes/run-command", json=line)).json()["output"] == "by a verb"


@pytest.mark.parametrize(
    "place", [("workspace", None, "/workspace"), ("base", None, "/home/user")], indirect=True
)
def test_working_directory__langchain_and_mcp_tools_agree(server, place, name):
    with SandboxClient(server.url, server.admin_key) as client:
        sandbox = client.get_sandbox(place.sandbox_id)
        tools = {tool.name: tool for tool in basic_tools(sandbox)}
        tools["write_file"].invoke({"path": f"{name}.py", "content": "print(6 * 7)"})
        said = tools["run_command"].invoke({"command": f"python3 {name}.py"})
        assert said == "42\n[exit code 0]"
        assert tools["read_file"].invoke({"path": f"{name}.py"}) == "print(6 * 7)"
        assert f"{name}.py" in tools["list_files"].invoke({})


@pytest.mark.parametrize("place", [("workspace", None, "/workspace")], indirect=True)
async def test_working_directory__file_in_the_home_is_not_found(files, run, name, place):
    await run(f"echo home >~/{name}")
    with pytest.raises(PathNotFound, match=name):
        await files.read(name)
