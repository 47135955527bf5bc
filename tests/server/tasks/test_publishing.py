import pytest

pytestmark = pytest.mark.needs_engine

SECRET = "ghp_" + "a1B2c3D4e5F6" * 3
LEAK = (
    f"echo 'token = \"{SECRET}\"' > settings.py && git add . && git commit -qm 'feat: add settings'"
)


async def test_publishing__subjects_of_commits_are_made_conventional(tasks, forge_world):
    await tasks.add_repository()
    two = "echo a > a && git add . && git commit -qm 'Add a.' && echo b > b && git add . && git commit -qm 'fix: add b'"
    task = await tasks.create(two)
    done = await tasks.until(task["id"], "in-review")
    assert done["published_sha"] == done["head_sha"]
    assert tasks.subjects(forge_world, done["branch"]) == ["fix: add b", "feat: add a"]


async def test_publishing__a_secret_is_refused_with_file_and_line_and_removed_from_the_history(
    tasks, forge_world
):
    await tasks.add_repository()
    fix = 'grep -q "remove the token" "$TASK_PROMPT_FILE"'
    again = "echo 'token = None' > settings.py && git commit -qam 'fix: remove the token'"
    task = await tasks.create(f"if {fix}; then {again}; else {LEAK}; fi")
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == "publication"
    assert "GitHub token in settings.py:1" in waiting["stage_reason"]
    assert SECRET not in str([waiting["stage_reason"], waiting["waits_for"]])
    assert forge_world.head(waiting["branch"]) is None
    assert await tasks.items(task["id"], "saves")
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": "Please remove the token."})
    done = await tasks.until(task["id"], "in-review", after=waiting)
    assert len(tasks.subjects(forge_world, done["branch"])) == 1
    assert SECRET not in tasks.patches(forge_world, done["branch"])


async def test_publishing__protected_paths_need_an_approval(tasks, forge_world):
    await tasks.add_repository(protected_paths=["src/**"])
    task = await tasks.create("echo '# more' >> src/widgets.py")
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert "src/widgets.py" in waiting["stage_reason"]
    assert forge_world.head(waiting["branch"]) is None
    await tasks.post(f"/v1/tasks/{task['id']}/approve", json={})
    await tasks.until(task["id"], "in-review", after=waiting)


async def test_publishing__commits_of_a_person_are_merged_and_not_overwritten(tasks, forge_world):
    await tasks.add_repository()
    task = await tasks.create("date +%N > own-$TASK_RUN")
    first = await tasks.until(task["id"], "in-review")
    theirs = forge_world.push({"theirs.txt": "by a person\n"}, branch=first["branch"])
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": "Do more."})
    second = await tasks.until(task["id"], "in-review", after=first)
    assert forge_world.head(first["branch"]) == second["published_sha"]
    assert tasks.contains(forge_world, second["published_sha"], theirs)
    assert tasks.contains(forge_world, second["published_sha"], first["published_sha"])
    found = await tasks.get(f"/v1/tasks/{task['id']}/diff")
    assert {"own-1", "theirs.txt"} < {file["path"] for file in found["files"]}


async def test_publishing__a_conflict_with_a_person_is_resolved_by_the_agent(tasks, forge_world):
    await tasks.add_repository()
    merge = "git merge -q origin/$TASK_BRANCH || { echo 'both' > shared && git add . && git commit -qm 'chore: merge both'; }"
    command = f'if grep -q "conflicts with your commits in: shared" "$TASK_PROMPT_FILE"; then {merge}; else date +%N > shared; fi'
    task = await tasks.create(command)
    first = await tasks.until(task["id"], "in-review")
    theirs = forge_world.push({"shared": "by a person\n"}, branch=first["branch"])
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": "Do more."})
    second = await tasks.until(task["id"], "in-review", after=first)
    assert tasks.contains(forge_world, second["published_sha"], theirs)


async def test_publishing__a_pull_request_that_was_closed_ends_the_task_and_keeps_the_branch(
    tasks, forge_world
):
    await tasks.add_repository()
    task = await tasks.create("echo two >> README.md")
    reviewed = await tasks.until(task["id"], "in-review")
    [pull] = forge_world.list_pulls()
    with forge_world.github.owner as owner:
        path = f"/repos/{forge_world.repository}/pulls/{pull['number']}"
        owner.patch(path, json={"state": "closed"}).raise_for_status()
    await tasks.look_at_pulls()
    await tasks.until(task["id"], "closed")
    assert forge_world.head(reviewed["branch"]) == reviewed["published_sha"]


async def test_publishing__without_a_pull_request_the_work_stays_in_the_saves(tasks, forge_world):
    await tasks.add_repository()
    task = await tasks.create("echo two >> README.md", pull_request="none")
    done = await tasks.until(task["id"], "done")
    assert forge_world.head(done["branch"]) is None
    assert forge_world.list_pulls() == []
    assert "+two" in (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]


async def test_publishing__a_wrong_credential_waits_with_a_reason_and_goes_on_after_a_retry(
    tasks, forge_world
):
    await tasks.put_forge(**forge_world.token)
    await tasks.add_repository(checks="sleep 2")
    task = await tasks.create("echo two >> README.md")
    await tasks.until(task["id"], "checking")
    await tasks.put_forge(**{**forge_world.token, "token": "ghp_revoked"})
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == "forge"
    assert "credential" in waiting["stage_reason"]
    await tasks.put_forge(**forge_world.token)
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    await tasks.until(task["id"], "in-review", after=waiting)


async def test_publishing__a_revoked_token_of_an_app_is_minted_again(tasks, forge_world):
    await tasks.add_repository(checks="sleep 2")
    task = await tasks.create("echo two >> README.md")
    await tasks.until(task["id"], "checking")
    forge_world.github.revoke()
    await tasks.until(task["id"], "in-review")


async def test_publishing__an_outage_of_the_forge_is_waited_for(tasks, forge_world):
    await tasks.add_repository(checks="sleep 2")
    task = await tasks.create("echo two >> README.md")
    await tasks.until(task["id"], "checking")
    forge_world.git.is_down = True
    forge_world.github.fault(path="pulls", status=502, times=3)
    await tasks.until(task["id"], "publishing")
    await tasks.post(f"/v1/tasks/{task['id']}/saves")
    forge_world.git.is_down = False
    await tasks.until(task["id"], "in-review")
    assert len(forge_world.list_pulls()) == 1


async def test_publishing__a_report_can_be_a_comment_on_a_persons_pull_request(tasks, forge_world):
    head = forge_world.push({"feature.py": "1\n"}, branch="feature", message="Add a feature")
    with forge_world.github.owner as owner:
        path = f"/repos/{forge_world.repository}"
        wanted = {"title": "Feature", "head": "feature", "base": "main"}
        number = owner.post(f"{path}/pulls", json=wanted).json()["number"]
        await tasks.add_repository()
        report = "echo more >> feature.py; echo 'A semicolon is missing.'"
        task = await tasks.create(report, base="feature", pull_request="comment")
        done = await tasks.until(task["id"], "done")
        [comment] = owner.get(f"{path}/issues/{number}/comments").json()
    assert "A semicolon is missing." in comment["body"]
    assert comment["html_url"] in done["stage_reason"]
    assert forge_world.head("feature") == head
    assert forge_world.head(done["branch"]) is None
