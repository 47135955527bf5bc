"""A project's directory and a real sandbox, through the server."""

import asyncio
import json

import pytest

from sandbox_client.workspace.config import FILE
from sandbox_client.workspace.plan import Direction
from sandbox_client.workspace.sync import SyncReport, paths_of
from sandbox_client.workspace.watch import DirectoryWatch
from sandbox_client.workspace.workspace import find_workspace, start_workspace
from tests.client.workspace.conftest import git

pytestmark = pytest.mark.needs_engine


@pytest.fixture
async def workspace(client, project):
    workspace = await begin(client, project)
    yield workspace
    await workspace.sandbox.delete()


async def begin(client, directory):
    return await start_workspace(client, directory, on_progress=lambda _: None)


async def inside(workspace, script):
    done = await workspace.sandbox.run(script, cwd="/workspace", check=True)
    return done.stdout


async def test_workspace__directory_is_synchronized_with_the_sandbox(workspace, project):
    (project / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (project / "run.sh").chmod(0o755)
    pushed = await workspace.shared.synchronize(Direction.PUSH)
    assert paths_of(pushed.pushed) == ["app.py", "run.sh"]
    assert await inside(workspace, "./run.sh; python3 app.py") == "ran\none\n"
    await inside(
        workspace, "echo two >app.py; mkdir -p made/here; echo new >made/here/x; rm run.sh"
    )
    waiting = await workspace.shared.synchronize(Direction.PUSH)
    assert waiting.to_pull == ["app.py", "made", "made/here", "made/here/x", "run.sh"]
    pulled = await workspace.shared.synchronize(Direction.PULL)
    assert pulled.refused == {}
    assert (project / "app.py").read_text() == "two\n"
    assert (project / "made/here/x").read_text() == "new\n"
    assert not (project / "run.sh").exists()
    again = await workspace.shared.synchronize(Direction.BOTH)
    assert again.pushed == again.pulled == []


async def test_workspace__conflict_is_kept_on_both_sides(workspace, project):
    await workspace.shared.synchronize(Direction.PUSH)
    await inside(workspace, "echo theirs >app.py")
    (project / "app.py").write_text("ours\n")
    report = await workspace.shared.synchronize(Direction.BOTH)
    assert report.conflicts == {"app.py": "app.from-sandbox.py"}
    await workspace.shared.synchronize(Direction.BOTH)
    assert (project / "app.py").read_text() == "ours\n"
    assert (project / "app.from-sandbox.py").read_text() == "theirs\n"
    assert await inside(workspace, "cat app.py app.from-sandbox.py") == "ours\ntheirs\n"


async def test_workspace__unfetched_changes_survive_the_next_start(client, workspace, project):
    await workspace.shared.synchronize(Direction.PUSH)
    await inside(workspace, "echo theirs >app.py")
    again = await begin(client, project)
    assert again.sandbox.id == workspace.sandbox.id
    report = await again.shared.synchronize(Direction.PUSH)
    assert report.to_pull == ["app.py"]
    assert await inside(workspace, "cat app.py") == "theirs\n"


async def test_git_history__is_copied_and_commits_are_fetched(workspace, project):
    git(project, "remote", "add", "origin", "https://me:secret@git.example.org/it.git")
    (project / "app.py").write_text("print('not committed')\n")
    assert await workspace.history.push()
    await workspace.shared.synchronize(Direction.PUSH)
    assert await inside(workspace, "git status --short; git log --format=%s; git remote -v") == (
        " M app.py\nBegin\n"
        "origin\thttps://git.example.org/it.git (fetch)\norigin\thttps://git.example.org/it.git (push)\n"
    )
    assert "secret" not in await inside(workspace, "grep -r secret .git || true")
    assert await workspace.history.fetch() == []
    await inside(workspace, "git commit --quiet --all --message Inside && git switch -qc other")
    assert await workspace.history.fetch() == ["main", "other"]
    assert (
        git(project, "log", "--format=%s %an", "sandbox/main") == "Inside A person\nBegin A person"
    )
    assert git(project, "log", "--format=%s", "main") == "Begin"
    assert await workspace.history.fetch() == []


async def test_git_history__hooks_of_the_sandbox_are_not_copied(workspace, project):
    await workspace.history.push()
    await workspace.shared.synchronize(Direction.PUSH)
    before = sorted(file.name for file in (project / ".git/hooks").iterdir())
    await inside(
        workspace, "echo '#!/bin/sh' >.git/hooks/pre-commit; git config core.fsmonitor evil"
    )
    await inside(workspace, "mkdir -p sub/.git/hooks; echo evil >sub/.git/hooks/post-checkout")
    await workspace.shared.synchronize(Direction.BOTH)
    await workspace.history.fetch()
    assert sorted(file.name for file in (project / ".git/hooks").iterdir()) == before
    assert not (project / "sub/.git").exists()
    with pytest.raises(Exception, match="returned non-zero"):
        git(project, "config", "core.fsmonitor")


async def test_workspace_setup__steps_run_once_until_they_change(workspace, project):
    told: list[str] = []
    written: list[str] = []
    workspace.project.setup[:] = ["echo first >>steps; echo said", "exit 3", "echo never >>steps"]
    tell, write = told.append, written.append
    assert not await workspace.set_up(tell=tell, write=write)
    assert told == [
        "$ echo first >>steps; echo said",
        "$ exit 3",
        "setup failed (3); the remaining steps were skipped",
    ]
    assert "".join(written) == "said\n"
    workspace.project.setup[:] = ["echo second >>steps"]
    assert await workspace.set_up(tell=tell, write=write)
    assert await workspace.set_up(tell=tell, write=write)
    assert await inside(workspace, "cat steps") == "first\nsecond\n"


async def test_workspace_config__configures_the_sandbox(client, project, monkeypatch):
    monkeypatch.setenv("GIVEN", "from here")
    described = {
        "metadata": {"team": "web"},
        "environment": ["GIVEN", "MODE=test"],
        "mcp_servers": {"docs": {"command": "true", "disabled": True}},
        "idle_timeout_s": 900,
    }
    (project / FILE).write_text(json.dumps(described))
    workspace = await begin(client, project)
    record = workspace.sandbox.record
    assert record.metadata == {"workspace": "project", "team": "web"}
    assert (record.idle_timeout_s, record.on_timeout) == (900, "pause")
    assert await inside(workspace, "echo $GIVEN $MODE") == "from here test\n"
    await workspace.sandbox.delete()


async def next_report(reports, condition):
    async with asyncio.timeout(30):
        while not condition(report := await reports.get()):
            pass
    return report


async def test_workspace_watch__synchronizes_both_directions(workspace, project):
    reports: asyncio.Queue[SyncReport] = asyncio.Queue()
    following = DirectoryWatch(
        workspace.shared,
        workspace.local,
        workspace.sandbox,
        on_report=reports.put_nowait,
        on_error=pytest.fail,
    )
    task = asyncio.create_task(following.run())
    await next_report(reports, lambda report: report.pushed)
    (project / "here.txt").write_text("from here")
    await next_report(reports, lambda report: paths_of(report.pushed) == ["here.txt"])
    assert await inside(workspace, "cat here.txt; echo 'from there' >there.txt") == "from here"
    await next_report(reports, lambda report: paths_of(report.pulled) == ["there.txt"])
    assert (project / "there.txt").read_text() == "from there\n"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_workspace__concurrent_synchronizations_are_serialized(client, workspace, project):
    for number in range(20):
        (project / f"{number}.txt").write_text(str(number))
    other = await find_workspace(client, project)
    reports = await asyncio.gather(
        *(one.shared.synchronize(Direction.BOTH) for one in (workspace, other))
    )
    assert sorted(len(report.pushed) for report in reports) == [0, 21]
    assert all(report.refused == {} for report in reports)


async def test_workspace__directory_without_git(client, tmp_path, home):
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "x").write_text("x")
    workspace = await begin(client, plain)
    assert not await workspace.history.push()
    await workspace.shared.synchronize(Direction.PUSH)
    assert await inside(workspace, "cat x") == "x"
    assert await workspace.history.fetch() == []
    await workspace.sandbox.delete()
