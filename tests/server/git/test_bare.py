import subprocess

import pytest

from sandbox_server.domain.errors import BundleRefused, CommitNotFound
from sandbox_server.git.remotes import PushResult
from sandbox_server.git.rewriting import Identity, is_conventional
from sandbox_server.git.scanning import (
    MAX_FILE,
    Pointers,
    find_secret,
    list_large_files,
    list_pointers,
)
from tests.server.git.conftest import NAME
from tests.server.git.lfs_store import oid_of, pointer_of
from tests.server.git.work_trees import git

BOT = Identity(name="a-bot", email="bot@example.org")


@pytest.fixture
async def worked(bare, seeded):
    """Take in two commits that were made above the base; give base and head."""
    base = seeded.git("rev-parse", "main")
    seeded.commit("made it better", src___main__py="print('three')\n", new__txt="a\n")
    seeded.commit("fix: remove a file\n\nIt was of no use.", image__bin=b"\0\1\2")
    seeded.git("rm", "--quiet", "README.md")
    head = seeded.commit("chore: clean up")
    await bare.import_bundle(seeded.bundle(base))
    return base, head


async def test_the_objects_of_a_bundle_are_taken_in_and_stay(bare, worked):
    base, head = worked
    assert await bare.has(head)
    assert await bare.is_ancestor(base, head)
    assert [commit.subject for commit in await bare.log(base, head)] == [
        "made it better",
        "fix: remove a file",
        "chore: clean up",
    ]


async def test_a_bundle_whose_base_is_unknown_is_refused(bare, seeded):
    seeded.commit("feat: not pushed", a="b")
    seeded.commit("feat: above it", a="c")
    with pytest.raises(CommitNotFound):
        await bare.import_bundle(seeded.bundle("main~1"))


async def test_a_bundle_with_a_path_out_of_the_repository_is_refused(bare, seeded):
    base = seeded.git("rev-parse", "main")
    blob = seeded.git("hash-object", "-w", "README.md")
    evil = git(seeded.path, "mktree", stdin=f"100644 blob {blob}\t.git\n".encode())
    commit = seeded.git("commit-tree", evil, "-p", base, "-m", "evil")
    with pytest.raises(BundleRefused, match="hasDotgit"):
        await bare.import_bundle(seeded.bundle(base, commit))
    assert not await bare.has(commit)


async def test_a_bundle_that_lacks_objects_is_refused(bare, seeded):
    base = seeded.git("rev-parse", "main")
    head = seeded.commit("feat: more", a="b")
    pack = git_pack(seeded, head)  # the commit without its tree
    header = f"# v2 git bundle\n-{base} base\n{head} refs/sandbox/save\n\n".encode()
    with pytest.raises(BundleRefused):
        await bare.import_bundle(header + pack)


async def test_a_bundle_whose_refs_name_commits_that_it_lacks_is_refused(bare, seeded):
    base = seeded.git("rev-parse", "main")
    header = f"# v2 git bundle\n-{base} base\n{'1' * 40} refs/sandbox/save\n\n".encode()
    with pytest.raises(BundleRefused):
        await bare.import_bundle(header + git_pack(seeded))


def git_pack(tree, *objects):
    done = subprocess.run(
        ["git", "pack-objects", "--stdout", "-q"],
        cwd=tree.path,
        input="".join(f"{one}\n" for one in objects).encode(),
        capture_output=True,
        check=True,
    )
    return done.stdout


async def test_changed_files_have_their_lines(bare, worked):
    changed = {one.path: one for one in await bare.changed_files(*worked)}
    assert changed.keys() == {"src/main.py", "new.txt", "image.bin", "README.md"}
    assert (changed["src/main.py"].added, changed["src/main.py"].removed) == (1, 2)
    assert changed["image.bin"].is_binary
    assert changed["README.md"].status == "D"


async def test_a_renamed_file_has_both_names(bare, seeded):
    base = seeded.commit("feat: long", long__txt="".join(f"{n}\n" for n in range(50)))
    seeded.push(seeded.path / ".." / "served" / f"{NAME}.git")
    seeded.git("mv", "long.txt", "with blank ü.txt")
    head = seeded.commit("feat: move it")
    await bare.import_bundle(seeded.bundle(seeded.git("rev-parse", "main~2")))
    (one,) = await bare.changed_files(base, head)
    assert (one.status, one.old_path, one.path) == ("R", "long.txt", "with blank ü.txt")


async def test_a_diff_is_limited_and_can_be_of_one_path(bare, worked):
    whole = await bare.diff(*worked)
    assert "+print('three')" in whole.text
    assert "Binary files /dev/null and b/image.bin differ" in whole.text
    assert not whole.truncated
    one = await bare.diff(*worked, path="new.txt")
    assert "three" not in one.text
    cut = await bare.diff(*worked, limit=50)
    assert cut.truncated
    assert len(cut.text) == 50


async def test_options_cannot_be_passed_as_commits(bare):
    with pytest.raises(CommitNotFound):
        await bare.diff("--output=/tmp/x", "--no-index")


async def test_only_commits_that_are_not_conventional_are_rewritten(bare, worked):
    base, head = worked

    def reword(commit):
        return commit.message if is_conventional(commit.subject) else f"feat: {commit.subject}"

    new = await bare.rewrite_commits(base, head, reword, committer=BOT)
    commits = await bare.log(base, new)
    assert [one.message for one in commits] == [
        "feat: made it better",
        "fix: remove a file\n\nIt was of no use.",
        "chore: clean up",
    ]
    assert {one.author for one in commits} == {"Ada"}
    assert await bare.tree_of(new) == await bare.tree_of(head)
    assert await bare.rewrite_commits(base, head, reword, committer=BOT) == new
    assert await bare.rewrite_commits(base, new, reword, committer=BOT) == new


async def test_squashed_commits_are_one_with_the_same_files(bare, worked):
    base, head = worked
    author = Identity(name="Grace", email="grace@example.org")
    new = await bare.squash(base, head, "feat: all of it", author=author, committer=BOT)
    (one,) = await bare.log(base, new)
    assert (one.author, one.subject, [*one.parents]) == ("Grace", "feat: all of it", [base])
    assert one.tree == await bare.tree_of(head)


async def test_a_push_makes_a_branch_and_a_second_one_changes_nothing(bare, worked, forge):
    credential, (_, head) = forge.credential(NAME), worked
    first = await bare.push(credential, "task-1", head, None)
    again = await bare.push(credential, "task-1", head, head)
    assert (first.result, again.result) == (PushResult.PUSHED, PushResult.UP_TO_DATE)
    assert await bare.ls_remote(credential, "task-1") == {"refs/heads/task-1": head}


async def test_a_push_over_commits_of_somebody_else_is_stale(bare, worked, forge, seeded):
    credential, (base, head) = forge.credential(NAME), worked
    await bare.push(credential, "task-1", base, None)
    theirs = seeded.commit("feat: by a person", b="c")
    seeded.push(forge.path(NAME), "main:task-1")
    outcome = await bare.push(credential, "task-1", head, base)
    assert outcome.result is PushResult.STALE
    assert await bare.ls_remote(credential, "task-1") == {"refs/heads/task-1": theirs}


async def test_a_push_that_the_remote_rejects_has_its_reason(bare, worked, forge):
    hook = forge.path(NAME) / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'the branch is protected' >&2\nexit 1\n")
    hook.chmod(0o755)
    outcome = await bare.push(forge.credential(NAME), "task-1", worked[1], None)
    assert outcome.result is PushResult.REJECTED
    assert "the branch is protected" in outcome.reason


async def test_a_push_that_a_talkative_remote_rejects_has_the_end_of_its_words(bare, worked, forge):
    hook = forge.path(NAME) / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    said = "GH013: rules were violated; for i in $(seq 50); do echo a warning of a library; done; echo the branch is protected; exit 1"
    hook.write_text(f"#!/bin/sh\nexec >&2\necho {said}\n")
    hook.chmod(0o755)
    outcome = await bare.push(forge.credential(NAME), "task-1", worked[1], None)
    assert "GH013: rules were violated" in outcome.reason
    assert outcome.reason.endswith("the branch is protected")
    assert len(outcome.reason) <= 1000


async def test_a_push_to_a_remote_that_does_not_answer_is_unreachable(bare, worked, forge):
    forge.answer = 502
    outcome = await bare.push(forge.credential(NAME), "task-1", worked[1], None)
    assert outcome.result is PushResult.UNREACHABLE


async def test_a_push_without_permission_is_rejected(bare, worked, forge):
    wrong = forge.credential(NAME, password="nobodys")
    outcome = await bare.push(wrong, "task-1", worked[1], None)
    assert outcome.result is PushResult.REJECTED
    assert "nobodys" not in outcome.reason


async def test_conflicts_of_two_commits_are_named(bare, worked, seeded):
    base, head = worked
    seeded.git("checkout", "--quiet", "-b", "elsewhere", base)
    other = seeded.commit("feat: otherwise", src___main__py="print('four')\n", else__txt="x")
    await bare.import_bundle(seeded.bundle(base, "elsewhere"))
    assert await bare.merge_conflicts(head, other) == ["src/main.py"]
    assert not await bare.merge_conflicts(base, head)


async def test_secrets_of_all_commits_are_found_with_their_line(bare, seeded):
    base = seeded.git("rev-parse", "main")
    key = "AKIA" + "Q7RS" * 4
    with_key = seeded.commit("feat: config", config__ini=f"[a]\nname = x\nkey = {key}\n")
    seeded.commit("fix: remove it", config__ini="[a]\nname = x\n")
    head = seeded.commit("feat: more", other__txt="fine\n")
    await bare.import_bundle(seeded.bundle(base))
    findings = await bare.scan(base, head)
    (found,) = findings.secrets
    assert (found.kind, found.path, found.line) == ("AWS access key", "config.ini", 3)
    assert found.commit == with_key
    assert findings.is_complete
    assert key not in repr(findings)


@pytest.mark.parametrize(
    "line",
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        "token = ghp_" + "a1B2" * 9,
        "url = https://me:hunter22@example.org/x",
        "glpat-" + "x" * 20,
    ],
)
def test_lines_with_secrets_are_recognised(line):
    assert find_secret(line) is not None


@pytest.mark.parametrize(
    "line",
    [
        "http://127.0.0.1:8000/x@y",
        "password = os.environ['PASSWORD']",
        "sha = " + "a" * 40,
        "https://$USER:$TOKEN@host/",
    ],
)
def test_lines_without_secrets_are_left_alone(line):
    assert find_secret(line) is None


async def test_protected_paths_submodules_large_and_lfs_files_are_found(bare, seeded):
    base = seeded.git("rev-parse", "main")
    seeded.commit("ci: mine", __github___workflows___a__yml="on: push\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    seeded.commit("feat: media", video__mp4=pointer, huge__bin=b"\0" * (MAX_FILE + 1))
    seeded.git("update-index", "--add", "--cacheinfo", f"160000,{base},vendored")
    seeded.git("commit", "--quiet", "-m", "feat: vendor it")
    head = seeded.git("rev-parse", "main")
    await bare.import_bundle(seeded.bundle(base))
    findings = await bare.scan(base, head, protected=[".github/workflows/**", "other/*"])
    assert findings.protected_paths == [".github/workflows/a.yml"]
    assert findings.lfs_pointers == ["video.mp4"]
    assert [(one.path, one.size) for one in findings.large_files] == [("huge.bin", MAX_FILE + 1)]
    assert findings.submodules == ["vendored"]
    assert (await bare.scan(base, base)).secrets == []


async def test_changed_pointers_are_listed_unless_they_are_of_another_server(bare, seeded):
    seeded.write(".gitattributes", "*.mp4 filter=lfs\n")
    base = seeded.commit("feat: media", a__mp4=pointer_of(b"a"), b__mp4=pointer_of(b"b"))
    head = seeded.commit("feat: change it", a__mp4=pointer_of(b"c"))
    seeded.write(".lfsconfig", "[lfs]\n\turl = https://lfs.example.org/acme\n")
    other = seeded.commit("ci: keep media elsewhere")
    await bare.import_bundle(seeded.bundle(seeded.git("rev-parse", "v1")))
    assert (await bare.scan(base, head)).lfs_pointers == ["a.mp4"]
    changed = await list_large_files(bare, head, base=base)
    assert {each.oid: path for each, path in changed.items()} == {oid_of(b"c"): "a.mp4"}
    named = await list_pointers(bare, head)
    assert {each.oid for each in named.objects} == {oid_of(b"b"), oid_of(b"c")}
    assert await list_large_files(bare, other, base=base) == {}
    assert await list_pointers(bare, other) == Pointers(other_server="lfs.example.org")


async def test_a_scratch_repository_is_removed_and_made_again(task_repositories, repository, bare):
    await task_repositories.remove("task")
    assert not bare.path.exists()
    async with task_repositories.open(repository, "task") as again:
        assert await again.has((await again.git("rev-list", "-1", "--alternate-refs")).text)
