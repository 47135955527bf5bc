from datetime import timedelta

import pytest

pytestmark = pytest.mark.needs_engine

WRITE = "echo two >> README.md && git commit -qam 'Add a line'"
_NO_WAIT = timedelta()


@pytest.fixture
def tasks(pushed_tasks):
    return pushed_tasks


async def run(tasks, pushed_forge, kind):
    await tasks.put_forge(**pushed_forge.forge(kind))
    await tasks.add_repository()
    task = await tasks.create(WRITE)
    done = await tasks.until(task["id"], "done")
    assert done["state"] == "completed"
    return done


async def test_by_push__a_deploy_token_of_gitlab_ends_in_a_merge_request(tasks, pushed_forge):
    done = await run(tasks, pushed_forge, "gitlab")
    [options] = pushed_forge.options()
    assert options[:3] == [
        "merge_request.create",
        "merge_request.target=main",
        "merge_request.title=chore: do it",
    ]
    assert "merge_request.draft" in options
    assert f"Task `{done['id']}`" in options[3]
    assert pushed_forge.head(done["branch"]) == done["published_sha"]
    pull = await tasks.get(f"/v1/tasks/{done['id']}/pull-request")
    assert (pull["number"], pull["head_sha"]) == (3, done["published_sha"])
    assert pull["url"] == f"{pushed_forge.server.url}/acme/widgets/-/merge_requests/3"
    assert pull["url"] in done["stage_reason"]


async def test_by_push__a_push_to_forgejo_ends_in_a_pull_request_without_a_branch(
    tasks, pushed_forge
):
    done = await run(tasks, pushed_forge, "forgejo")
    [options] = pushed_forge.options()
    assert options[0] == f"topic={done['branch']}"
    assert options[1].startswith("title=WIP: ")
    assert pushed_forge.branches() == ["main"]
    assert pushed_forge.head("refs/pull/7/head") == done["published_sha"]
    pull = await tasks.get(f"/v1/tasks/{done['id']}/pull-request")
    assert pull["url"] == f"{pushed_forge.server.url}/acme/widgets/pulls/7"


async def test_by_push__a_plain_git_server_ends_in_a_pushed_branch(tasks, pushed_forge):
    done = await run(tasks, pushed_forge, "git")
    assert pushed_forge.options() == [[""]]
    assert pushed_forge.head(done["branch"]) == done["published_sha"]
    assert (await tasks.api.get(f"/v1/tasks/{done['id']}/pull-request")).status_code == 404
    assert f"The branch {done['branch']} was pushed." in done["stage_reason"]


async def test_by_push__a_forge_without_push_options_gets_the_branch(
    tasks, pushed_forge, monkeypatch
):
    monkeypatch.setattr("sandbox_server.tasks.stages.pull_requests._SHOWN_WITHIN", _NO_WAIT)
    pushed_forge.refuse_options()
    done = await run(tasks, pushed_forge, "forgejo")
    assert pushed_forge.head(done["branch"]) == done["published_sha"]
    assert "shows no pull request" in done["stage_reason"]
