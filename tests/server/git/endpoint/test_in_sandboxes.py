"""git in sandboxes of a real engine, against a whole server and a git server as the forge."""

import os
import re
from pathlib import Path

import httpx
import pytest
from e2b import CommandExitException, CommandResult
from sqlalchemy import text

from sandbox_server.db.models import Sandbox
from sandbox_server.git.endpoint.sandbox_config import SandboxGitConfig
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from tests.engine.engine_process import EngineProcess
from tests.engine.polling import until
from tests.server.git.git_server import PASSWORD, USER
from tests.server.git.lfs_client import GIT_LFS, needs_git_lfs
from tests.server.git.lfs_store import oid_of, pointer_of
from tests.server.git.work_trees import git
from tests.server.support.full_server import inside, serving_outside

pytestmark = pytest.mark.needs_engine

NAME = "acme/widgets"
HOME = "/home/user"


@pytest.fixture(scope="module")
def engine():
    """Run an engine of the module's own: its door leads to one server."""
    engine = EngineProcess("--pool-size", "1")
    engine.start()
    yield engine
    engine.remove()


@pytest.fixture
async def outside(database_url, engine, forge, seeded, tmp_path):
    """Run a server that has the forge and its repository."""
    origin = f"http://127.0.0.1:{forge.port}"
    (tmp_path / "state").mkdir()
    async with serving_outside(
        database_url,
        engine,
        state_dir=tmp_path / "state",
        forge_hosts=(origin,),
        agent_template=False,
    ) as outside:
        (engine.state_dir / "git-server").write_text(f"http://127.0.0.1:{outside.port}")
        async with outside.api() as api:
            put = await api.put(
                "/v1/forges/git",
                json={
                    "kind": "git",
                    "git_url": origin,
                    "git_username": USER,
                    "token": PASSWORD,
                },
            )
            assert put.status_code in (200, 201), put.text
            added = await api.post("/v1/repositories", json={"forge": "git", "full_name": NAME})
            assert added.status_code == 201, added.text
        yield outside


class Box:
    """A sandbox, asked as its agent would be."""

    def __init__(self, outside, record, handle):
        self.outside, self.record, self.handle = outside, record, handle

    @property
    def id(self):
        return self.record["id"]

    async def run(self, command, *, fails=False, user="user", cwd=None):
        done: CommandResult | CommandExitException
        try:
            done = await self.handle.commands.run(command, user=user, cwd=cwd, timeout=60)
        except CommandExitException as error:
            done = error
        said = f"{done.stdout}{done.stderr}"
        assert bool(done.exit_code) == fails, f"{command}: {said}"
        return said

    async def git(self, command, **options):
        return await self.run(f"git {command}", cwd=f"{HOME}/widgets", **options)


@pytest.fixture
async def sandbox(outside):
    """Create sandboxes with the repository, and wait until it is checked out."""
    async with outside.api() as api:
        made = []

        async def create(**repository):
            wanted = {"template": "base", "repository": {"name": NAME, **repository}}
            answer = await api.post("/v1/sandboxes", json=wanted)
            assert answer.status_code == 201, answer.text
            record = answer.json()
            made.append(record["id"])

            async def is_checked_out():
                nonlocal record
                record = (await api.get(f"/v1/sandboxes/{record['id']}")).json()
                return record["repository"]["state"] != "pending"

            await until(is_checked_out, timeout=60)
            return Box(outside, record, await inside(outside, record["id"]))

        yield create
        for sandbox_id in made:
            await api.delete(f"/v1/sandboxes/{sandbox_id}")


async def test_repository__is_checked_out_and_works_without_a_credential(
    sandbox, forge, seeded, database_url
):
    box = await sandbox(branch="agent-1", push=True)
    checkout = box.record["repository"]
    assert checkout == {
        "id": checkout["id"],
        "name": NAME,
        "ref": "main",
        "branch": "agent-1",
        "push": True,
        "directory": f"{HOME}/widgets",
        "state": "ready",
        "reason": None,
        "commit": seeded.git("rev-parse", "main"),
    }
    assert await box.git("status --porcelain --branch") == "## agent-1\n"
    ours = f"http://git.sandbox/git/127.0.0.1:{forge.port}/{NAME}.git"
    assert (await box.git("remote get-url origin")).strip() == ours
    assert (await box.git("config remote.origin.url")).startswith("http://127.0.0.1:")
    later = seeded.commit("feat: later", later__txt="1")
    seeded.push(forge.path(NAME), "main")
    box.outside.components.git_endpoint._fetches._recent_pushes.note(checkout["id"])
    await box.git("fetch -q")
    assert (await box.git("rev-parse origin/main")).strip() == later
    await box.git("commit -q --allow-empty -m 'feat: work'")
    said = await box.git("push origin agent-1")
    assert "[new branch]" in said
    assert git(forge.path(NAME), "rev-parse", "agent-1") == (
        (await box.git("rev-parse HEAD")).strip()
    )
    said = await box.git("push origin HEAD:extra", fails=True)
    assert "(only agent-1 may be pushed)" in said
    await _find_canary(box, database_url)


async def _search(box, wanted):
    """Search as every account: root has no rights over other accounts' processes here."""
    command = f"python3 /tmp/find.py {wanted[::-1]}"  # reversed, so that it does not find itself
    said = [await box.run(command, user=user) for user in ("user", "root")]
    assert all(text.endswith("searched\n") for text in said)
    return "".join(said).replace("searched\n", "")


async def _find_canary(box, database_url):
    """Search the forge's token in memory, environments, files and processes of the sandbox, and in all rows."""
    canaries = [PASSWORD, "eC1hY2Nlc3MtdG9rZW46dG9rZW4tb2YtdGhlLWZvcmdl"[:24]]
    await box.handle.files.write("/tmp/find.py", FIND)
    # What is there is found: in a file, an environment and memory.
    await box.run("CONTROL=is-there-1 sleep 60 >/dev/null 2>&1 & echo is-there-2 >/var/tmp/control")
    script = "import time; held = '-'.join(('is', 'there', '3')); time.sleep(60)"
    await box.handle.commands.run(f'python3 -c "{script}"', background=True)
    found = await _search(box, "is-there-")
    assert {"environ", "control", "memory"} <= set(re.findall("environ|control|memory", found))
    for canary in canaries:
        assert await _search(box, canary) == ""
    async with box.outside.components.sessions() as session:
        tables = await session.scalars(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        )
        for table in tables.all():
            rows = await session.scalars(text(f"SELECT t::text FROM {table} t"))
            found = [row for row in rows if any(canary in row for canary in canaries)]
            assert not found, table
    async with box.outside.api() as api:
        for path in ("", "/events"):
            answer = await api.get(f"/v1/sandboxes/{box.id}{path}")
            assert not any(canary in answer.text for canary in canaries)


# All files, environments, command lines and readable memory.
FIND = r"""
import os, re, sys
wanted = sys.argv[1][::-1].encode()
def look(what, content):
    if wanted in content:
        print("found in", what)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid():
        continue
    for name in ("environ", "cmdline"):
        try:
            look(f"/proc/{pid}/{name}", open(f"/proc/{pid}/{name}", "rb").read())
        except OSError:
            pass
    try:
        maps, memory = open(f"/proc/{pid}/maps").read(), open(f"/proc/{pid}/mem", "rb", 0)
    except OSError:
        continue
    for start, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) r", maps, re.M):
        try:
            memory.seek(int(start, 16))
            look(f"memory of {pid}", memory.read(min(int(end, 16) - int(start, 16), 1 << 26)))
        except (OSError, ValueError, OverflowError):
            pass
for place, directories, names in os.walk("/"):
    if place.startswith(("/proc", "/sys", "/dev")):
        directories.clear()
        continue
    for name in names:
        path = os.path.join(place, name)
        try:
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) < 1 << 26:
                look(path, open(path, "rb").read())
        except OSError:
            pass
print("searched")
"""


async def test_repository__neighbours_and_the_api_are_out_of_reach(sandbox, outside, forge):
    box = await sandbox()
    other = await sandbox(branch="other", push=True)
    base = f"http://git.sandbox/git/127.0.0.1:{forge.port}"
    refused = await box.git(f"ls-remote {base}/acme/secrets", fails=True)
    assert "is not a repository of this sandbox" in refused
    refused = await box.git("push origin HEAD:other", fails=True)
    assert "may fetch" in refused
    # Another's id or a forged signature in a header says nothing.
    forged = (
        "-c http.extraHeader='Sandbox-Origin: %s;1;00' -c http.extraHeader='Authorization: Basic x'"
    )
    refused = await box.git(f"{forged % other.id} push origin HEAD:other", fails=True)
    assert "may fetch" in refused
    for path in ("/v1/sandboxes", "/healthz", "/git/../v1/sandboxes", f"/v1/sandboxes/{other.id}"):
        status = await box.run(
            f"curl -s -o /dev/null -w '%{{http_code}}' --path-as-is http://git.sandbox{path}"
        )
        assert status == "404"
    port = outside.port
    assert "000" in await box.run(
        f"curl -s -m 3 -w '%{{http_code}}' http://$(getent ahostsv4 git.sandbox | cut -d' ' -f1 | head -1):{port}/healthz",
        fails=True,
    )


async def test_repository__other_spellings_and_longer_names(sandbox, forge):
    box = await sandbox()
    ours = f"http://git.sandbox/git/127.0.0.1:{forge.port}/acme/widgets"
    for address, leads_to in {
        f"http://127.0.0.1:{forge.port}/acme/widgets": ours,
        f"http://127.0.0.1:{forge.port}/acme/widgets.git": f"{ours}.git",
        "git@127.0.0.1:acme/widgets.git": f"{ours}.git",
        "ssh://git@127.0.0.1/acme/widgets": ours,
        f"http://127.0.0.1:{forge.port}/acme/widgets-extra": f"http://127.0.0.1:{forge.port}/acme/widgets-extra",
    }.items():
        assert (await box.run(f"git ls-remote --get-url {address}")).strip() == leads_to
    assert "refs/heads/main" in await box.run("git ls-remote git@127.0.0.1:acme/widgets.git")


async def test_repository__that_cannot_be_checked_out(outside, sandbox, forge):
    box = await sandbox(ref="missing")
    assert box.record["state"] == "running"
    assert box.record["repository"]["state"] == "failed"
    assert "missing" in box.record["repository"]["reason"]
    async with outside.api() as api:
        for repository, status in (
            ({"name": "acme/none"}, 404),
            ({"id": "0" * 20}, 404),
            ({}, 422),
            ({"name": NAME, "id": "0" * 20}, 422),
            ({"name": NAME, "push": True}, 422),
            ({"name": NAME, "push": True, "branch": "main"}, 422),
            ({"name": NAME, "branch": "a..b"}, 422),
            ({"name": NAME, "branch": "-f"}, 422),
            ({"name": NAME, "directory": "relative"}, 422),
        ):
            answer = await api.post("/v1/sandboxes", json={"repository": repository})
            assert answer.status_code == status, answer.text


async def test_repository__without_a_door_git_shows_the_token_of_the_sandbox(
    sandbox, outside, forge
):
    """A provider elsewhere: nothing leads git.sandbox anywhere, and the server has a public URL."""
    box = await sandbox()
    hosts = "grep -v git.sandbox /etc/hosts >/tmp/hosts; cat /tmp/hosts >/etc/hosts"
    await box.run(hosts, user="root")
    components = outside.components
    async with components.sessions() as session:
        row = await session.get_one(Sandbox, box.id)
    public = SandboxGitConfig(
        components.git_endpoint._access,
        ServiceConfigWriter(components.sessions, components.backends, components.vault),
        public_url="https://sandboxes.example.org",
    )
    await public.write(SandboxAccess(components.backends, components.vault).usable(row))
    ours = f"https://sandboxes.example.org/git/127.0.0.1:{forge.port}/acme/widgets.git"
    assert (await box.git("remote get-url origin")).strip() == ours
    filled = await box.git(f"credential fill <<<url={ours}")
    [user] = re.findall("^username=(.*)$", filled, re.MULTILINE)
    [token] = re.findall("^password=(.*)$", filled, re.MULTILINE)
    mode = await box.run("stat -c '%a %U' /etc/sandbox/git-credential")
    assert (user, mode) == (box.id, "600 user\n")
    address = f"http://127.0.0.1:{outside.port}/git/127.0.0.1:{forge.port}/acme/widgets"
    async with httpx.AsyncClient(auth=(user, token)) as client:
        listed = await client.get(f"{address}/info/refs?service=git-upload-pack")
    assert listed.status_code == 200


@needs_git_lfs
async def test_large_files__are_fetched_and_pushed_through_the_door(sandbox, forge, seeded):
    film = os.urandom(300_000)
    seeded.write(".gitattributes", "*.mp4 filter=lfs diff=lfs merge=lfs -text\n")
    seeded.commit("feat: film", film__mp4=pointer_of(film))
    seeded.push(forge.path(NAME), "main")
    forge.lfs.add(film)
    seeded.git("checkout", "-q", "-b", "lost")
    seeded.commit("feat: lost film", lost__mp4=pointer_of(b"lost"))
    seeded.push(forge.path(NAME), "lost")
    box = await sandbox(branch="agent-1", push=True)
    await box.handle.files.write("/usr/local/bin/git-lfs", Path(GIT_LFS).read_bytes(), user="root")
    await box.run("chmod 755 /usr/local/bin/git-lfs && git lfs install --system", user="root")
    await box.git("lfs pull")
    sums = await box.run(f"sha256sum {HOME}/widgets/film.mp4")
    assert sums.split()[0] == oid_of(film)
    await box.run(f"head -c 3000000 /dev/urandom >{HOME}/widgets/new.mp4")
    await box.git("add -A")
    await box.git("commit -qm 'feat: another film'")
    await box.git("push -q origin agent-1")
    new = (await box.run(f"sha256sum {HOME}/widgets/new.mp4")).split()[0]
    assert len(forge.lfs.contents[new]) == 3_000_000
    assert "token-of" not in await box.git("config --list")
    await box.git("checkout -q lost")
    assert await box.run(f"cat {HOME}/widgets/lost.mp4") == pointer_of(b"lost")
