"""Whatever is wrong with a task, its work or its forge: it goes on, or waits with a reason and a way forward."""

import pytest

from tests.server.forges.support.git_server import git

pytestmark = pytest.mark.needs_engine

WRITE = "echo two >> README.md"
SECONDARY_LIMIT = {
    "status": 403,
    "headers": {"retry-after": "2"},
    "body": {"message": "You have exceeded a secondary rate limit. Please wait."},
}
INVALID = {"status": 422, "body": {"message": "Validation Failed", "errors": [{"code": "custom"}]}}
FAILED = {"status": 500, "times": 3}


async def _wait(tasks, task, kind):
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == kind, waiting["stage_reason"]
    return waiting


def _force_push(world, branch):
    """Have a person replace all commits of a branch by one of their own."""
    clone = world.directory / "forced"
    url = world.git.url_of(world.repository, world.github.owner_token)
    git("clone", "--quiet", url, str(clone))
    (clone / "theirs.txt").write_text("by a person\n")
    git("-C", str(clone), "add", "--all")
    git("-C", str(clone), "commit", "--quiet", "--message", "Replace everything")
    git("-C", str(clone), "push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{branch}")
    return git("-C", str(clone), "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["acme/nothing", "acme/gadgets"])
async def test_bad_input__a_missing_or_forbidden_repository_is_not_added(tasks, name):
    body = {"forge": "forge", "full_name": name, "settings": {}}
    answer = await tasks.api.post("/v1/repositories", json=body)
    assert 400 <= answer.status_code < 500, answer.text
    problem = answer.json()
    assert problem["code"].startswith("forge-")
    assert "access to the repository" in problem["remediation"]


async def test_bad_input__a_repository_that_was_hidden_waits_and_goes_on_after_a_retry(
    tasks, forge_world
):
    await tasks.add_repository()
    forge_world.github.fault(
        path="^/repos/acme/widgets$", status=404, body={"message": "Not Found"}
    )
    task = await tasks.create(WRITE)
    waiting = await _wait(tasks, task, "forge")
    assert "retry" in waiting["waits_for"]["actions"]
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    await tasks.until(task["id"], "in-review", after=waiting)


async def test_bad_input__a_branch_that_somebody_else_has_taken_is_not_overwritten(
    tasks, forge_world
):
    await tasks.add_repository(checks="sleep 3")
    task = await tasks.create(WRITE)
    await tasks.until(task["id"], "checking")
    theirs = forge_world.push({"theirs.txt": "by a person\n"}, branch=f"task-{task['id']}")
    done = await tasks.until(task["id"], "in-review")
    assert tasks.contains(forge_world, done["branch"], theirs)
    assert forge_world.head(done["branch"]) == done["published_sha"]
    assert "+two" in tasks.patches(forge_world, done["branch"])
    assert len(forge_world.list_pulls()) == 1


async def test_bad_input__a_force_pushed_branch_keeps_the_commits_of_both(tasks, forge_world):
    await tasks.add_repository()
    task = await tasks.create("date +%N > own-$TASK_RUN")
    first = await tasks.until(task["id"], "in-review")
    theirs = _force_push(forge_world, first["branch"])
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": "Do more."})
    second = await tasks.until(task["id"], "in-review", after=first)
    assert forge_world.head(first["branch"]) == second["published_sha"]
    for sha in (theirs, first["published_sha"]):
        assert tasks.contains(forge_world, second["published_sha"], sha)
    assert len(forge_world.list_pulls()) == 1


async def test_bad_input__a_file_above_the_limit_of_the_forge_is_named_and_can_be_removed(
    tasks, forge_world
):
    await tasks.add_repository()
    large = "head -c 101M /dev/zero > big.bin && git add . && git commit -qm 'feat: add data'"
    remove = "git rm -q big.bin && echo two >> README.md && git commit -qam 'fix: remove data'"
    task = await tasks.create(
        f'if grep -q "Remove the file" "$TASK_PROMPT_FILE"; then {remove}; else {large}; fi'
    )
    waiting = await _wait(tasks, task, "publication")
    assert "big.bin (101 MiB)" in waiting["stage_reason"]
    assert forge_world.head(waiting["branch"]) is None
    assert await tasks.items(task["id"], "saves")
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": "Remove the file."})
    done = await tasks.until(task["id"], "in-review", after=waiting)
    assert "big.bin" not in tasks.patches(forge_world, done["branch"])


async def test_bad_input__work_above_the_limit_of_a_save_waits_in_its_sandbox(tasks, forge_world):
    await tasks.add_repository()
    large = "head -c 70M /dev/urandom > big.bin && git add . && git commit -qm 'feat: add data'"
    remove = "git reset -q --hard HEAD~1 && echo two >> README.md"
    task = await tasks.create(
        f'if grep -q "Remove the file" "$TASK_PROMPT_FILE"; then {remove}; else {large}; fi'
    )
    waiting = await _wait(tasks, task, "save")
    assert "The largest files: big.bin (70 MiB)." in waiting["stage_reason"]
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": "Remove the file."})
    done = await tasks.until(task["id"], "in-review", after=waiting)
    assert "+two" in tasks.patches(forge_world, done["branch"])


WORKFLOW = "echo 'on: pull_request' > .github/workflows/ci.yml"


async def test_bad_input__a_change_of_a_workflow_waits_for_an_approval_and_is_then_published(
    tasks, forge_world
):
    await tasks.put_forge(**forge_world.token)
    await tasks.add_repository()
    task = await tasks.create(WORKFLOW)
    waiting = await _wait(tasks, task, "publication")
    assert ".github/workflows/ci.yml" in waiting["stage_reason"]
    assert forge_world.head(waiting["branch"]) is None
    await tasks.post(f"/v1/tasks/{task['id']}/approve", json={})
    done = await tasks.until(task["id"], "in-review", after=waiting)
    assert "+on: pull_request" in tasks.patches(forge_world, done["branch"])


async def test_bad_input__an_approved_workflow_without_the_permission_names_it(tasks, forge_world):
    await tasks.add_repository()
    task = await tasks.create(WORKFLOW)
    waiting = await _wait(tasks, task, "publication")
    await tasks.post(f"/v1/tasks/{task['id']}/approve", json={})
    refused = await tasks.until(task["id"], "waiting-for-user", after=waiting)
    assert refused["waits_for"]["kind"] == "forge"
    assert "workflows" in refused["stage_reason"]
    await tasks.put_forge(**forge_world.token)
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    await tasks.until(task["id"], "in-review", after=refused)
    assert [run["number"] for run in await tasks.items(task["id"], "runs")] == [1]
    messages = await tasks.items(task["id"], "messages")
    assert len(messages) == 1, "the agent is told of a retry in which it has nothing to do"


@pytest.mark.parametrize("fault", [SECONDARY_LIMIT, FAILED], ids=["secondary-limit", "500"])
async def test_bad_input__a_limit_or_a_failure_of_the_forge_is_waited_for(
    tasks, forge_world, fault
):
    await tasks.add_repository()
    forge_world.github.fault(path="/pulls$", method="POST", **fault)
    task = await tasks.create(WRITE)
    await tasks.until(task["id"], "in-review")
    assert len(forge_world.list_pulls()) == 1


@pytest.mark.parametrize("what", ["request", "answer"])
async def test_bad_input__a_forge_that_answers_nothing_gets_one_pull_request(
    tasks, forge_world, what
):
    await tasks.add_repository()
    forge_world.github.lose(what, path="/pulls$", method="POST")
    task = await tasks.create(WRITE)
    await tasks.until(task["id"], "in-review")
    assert len(forge_world.list_pulls()) == 1


async def test_bad_input__a_pull_request_that_the_forge_refuses_waits_with_its_words(
    tasks, forge_world
):
    await tasks.add_repository()
    forge_world.github.fault(path="/pulls$", method="POST", **INVALID)
    task = await tasks.create(WRITE)
    waiting = await _wait(tasks, task, "forge")
    assert "Validation Failed" in waiting["stage_reason"]
    assert forge_world.head(waiting["branch"]) == waiting["head_sha"]
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    await tasks.until(task["id"], "in-review", after=waiting)
    assert len(forge_world.list_pulls()) == 1


async def test_bad_input__capabilities_that_a_repositorys_template_lacks_are_named(tasks):
    repository = await tasks.add_repository(capabilities=["gpu"])
    assert repository["settings"]["capabilities"] == ["gpu"]
    task = await tasks.create(WRITE)
    waiting = await _wait(tasks, task, "sandbox")
    assert "does not have the capability gpu." in waiting["stage_reason"]
