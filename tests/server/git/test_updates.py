"""Updates of prepared checkouts: the scripts of sandboxes, in directories of this machine."""

import os
import subprocess
from pathlib import Path

import pytest

from sandbox_server.git.inside import SEAL, UPDATE
from sandbox_server.git.mirrors import Mirror
from sandbox_server.git.packs import prepare_update
from tests.server.git.work_trees import WorkTree, git

REPOSITORY = "repository"
ANOTHER_CHECKOUT = 92
NAMES = ("with space.txt", "new\nline.txt", "größe-日本.txt", '"quoted".txt', "-dash.txt")


class PreparedCheckout:
    """A checkout on this machine that the scripts take for that of a sandbox."""

    def __init__(self, path: Path, author: WorkTree, mirror: Mirror, known: str) -> None:
        self.path, self._author, self._mirror, self._known = path, author, mirror, known
        git(path.parent, "clone", "--quiet", str(mirror.path), str(path))
        self.git("checkout", "--quiet", "-B", "prepared", known)
        self.git("branch", "--quiet", "-D", "main")
        (path / ".git" / "sandbox-ready").write_text(f"{REPOSITORY} {known} prepared\n")

    def git(self, *args: str) -> str:
        return git(self.path, *args)

    def forget_history(self) -> None:
        """Keep the one commit, as in the checkout of a large repository."""
        (self.path / ".git" / "shallow").write_text(f"{self._known}\n")
        self.git("update-ref", "-d", "refs/remotes/origin/main")
        self.git("update-ref", "-d", "refs/remotes/origin/HEAD")
        self.git("reflog", "expire", "--expire=all", "--all")
        self.git("repack", "-q", "-a", "-d")
        self.git("prune", "--expire=now")

    def seal(self) -> None:
        assert self._run(SEAL) == 0

    async def update(
        self,
        wanted: str,
        *,
        is_plain: bool = True,
        is_shallow: bool = False,
        known: str | None = None,
    ) -> int:
        git(self._mirror.path, "fetch", "--quiet", str(self._author.path), "+main:main")
        update = await prepare_update(self._mirror, self._known, wanted, is_shallow=is_shallow)
        for file in update.files:
            (self.path / ".git/objects/pack" / file.name).write_bytes(file.read_bytes())
        return self._run(
            UPDATE,
            KNOWN=known or self._known,
            BASE=wanted,
            SHALLOW="1" if is_shallow else "",
            PLAIN="1" if is_plain and not update.changes_ignored else "",
        )

    def _run(self, script: str, **envs: str) -> int:
        given = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "TARGET": str(self.path),
            "REPOSITORY": REPOSITORY,
            "URL": "https://git.example.org/acme/widgets",
            "BRANCH": "task-1",
            "BASE_REF": "main",
            "NAME": "Ada",
            "EMAIL": "ada@example.org",
        }
        done = subprocess.run(["bash", "-c", script], env=given | envs, check=False)
        return done.returncode

    @property
    def looked_at_all_files(self) -> bool:
        return "to task-1" in self.git("reflog", "HEAD")

    def state(self) -> dict[str, object]:
        """Describe what must not depend on how the checkout was updated."""
        return {
            "files": dict(_files(self.path)),
            "index": self.git("ls-files", "--stage", "-z"),
            "status": self.git("status", "--porcelain", "--branch"),
            "refs": self.git("for-each-ref", "--format=%(objectname) %(refname)"),
            "user": self.git("config", "user.email"),
            "faults": self.git("fsck", "--connectivity-only"),
        }


def _files(root: Path):
    for parent, directories, names in os.walk(root):
        if ".git" in directories and Path(parent) == root:
            directories.remove(".git")
        for name in (*names, *directories):
            path = Path(parent, name)
            shown = path.readlink() if path.is_symlink() else None
            content = path.read_bytes() if path.is_file() and shown is None else None
            mode = path.lstat().st_mode if content is not None else None
            yield str(path.relative_to(root)), (mode, shown, content)


@pytest.fixture
def author(tmp_path):
    tree = WorkTree(tmp_path / "author")
    for name in ("keep", "edit", "gone", "renamed", "tool", "becomes-link"):
        tree.write(f"{name}.txt", f"{name}\n" * 20)
    for name in (*NAMES, "becomes-file/a/inner.txt", "becomes-directory", "run.bat"):
        tree.write(name, "one\ntwo\n")
    tree.write(".gitattributes", "*.bat eol=crlf\n")
    tree.write(".gitignore", "*.o\n")
    (tree.path / "link").symlink_to("edit.txt")
    _vendor(tree, "1" * 40)
    tree.commit("feat: begin")
    return tree


def _vendor(tree: WorkTree, commit: str) -> None:
    (tree.path / "vendored").mkdir(exist_ok=True)
    tree.git("update-index", "--add", "--cacheinfo", f"160000,{commit},vendored")


def _change_everything(tree: WorkTree) -> str:
    root = tree.path
    for name in ("edit.txt", "run.bat", *NAMES):
        tree.write(name, "three\n")
    (root / "gone.txt").unlink()
    tree.git("mv", "renamed.txt", "moved to here.txt")
    (root / "tool.txt").chmod(0o755)
    for name, target in (("link", "keep.txt"), ("becomes-link.txt", "nowhere")):
        (root / name).unlink()
        (root / name).symlink_to(target)
    tree.git("rm", "-rq", "becomes-file", "becomes-directory")
    tree.write("becomes-file", "a file\n")
    tree.write("becomes-directory/of/files.txt", "a directory\n")
    tree.write(".gitattributes", "*.bat eol=lf\n*.txt text eol=crlf\n")
    tree.write("new/in/directories.txt", "new\n")
    _vendor(tree, "2" * 40)
    return tree.commit("feat: change everything")


@pytest.fixture
def prepared_of(author, tmp_path):
    """Make checkouts of the author's first commit, in which a setup has left files."""
    first = author.git("rev-parse", "main")
    mirror = Mirror(tmp_path / "mirror.git")
    git(tmp_path, "clone", "--quiet", "--mirror", str(author.path), str(mirror.path))

    def make(name: str, known: str = first) -> PreparedCheckout:
        git(mirror.path, "fetch", "--quiet", str(author.path), "+main:main")
        made = PreparedCheckout(tmp_path / name, author, mirror, known)
        for left in ("built.txt", "cache.o", "becomes-file/a/cache.o"):
            (made.path / left).write_text("built\n")
        (made.path / "edit.txt").write_text("changed by the setup\n")
        made.seal()
        return made

    return make


async def test_update__a_sealed_checkout_becomes_what_a_look_at_all_files_makes_of_it(
    author, prepared_of
):
    wanted = _change_everything(author)
    changed, all_files = prepared_of("changed"), prepared_of("all-files")
    assert await changed.update(wanted) == 0
    assert await all_files.update(wanted, is_plain=False) == 0
    assert not changed.looked_at_all_files
    assert all_files.looked_at_all_files
    assert changed.state() == all_files.state()
    assert changed.git("status", "--porcelain", "--branch") == "## task-1"
    assert changed.git("rev-parse", "HEAD") == wanted
    assert (changed.path / "built.txt").exists()
    assert (changed.path / "cache.o").exists()


async def test_update__files_that_are_not_ignored_any_more_are_removed(author, prepared_of):
    author.write("new/.gitignore", "*.log\n")
    author.write(".gitignore", "*.so\n")
    wanted = author.commit("chore: ignore other files")
    prepared = prepared_of("prepared")
    assert await prepared.update(wanted) == 0
    assert prepared.git("status", "--porcelain") == ""
    assert not (prepared.path / "cache.o").exists()


async def test_update__a_file_in_the_way_or_a_changed_one_takes_the_safe_path(author, prepared_of):
    wanted = _change_everything(author)
    for name in ("new", "edit.txt"):
        prepared = prepared_of(f"prepared-{name}")
        (prepared.path / name).write_text("in the way\n")
        assert await prepared.update(wanted) == 0
        assert prepared.looked_at_all_files
        assert prepared.git("status", "--porcelain", "--branch") == "## task-1"


async def test_update__a_seal_is_used_once_and_not_where_changes_are_left(author, prepared_of):
    prepared = prepared_of("prepared")
    sealed = prepared.path / ".git" / "sandbox-sealed"
    assert sealed.read_text()
    wanted = _change_everything(author)
    assert await prepared.update(wanted, known="0" * 40) == ANOTHER_CHECKOUT
    assert sealed.read_text()
    assert await prepared.update(wanted) == 0
    assert not sealed.read_text()
    assert await prepared.update(wanted) == ANOTHER_CHECKOUT


async def test_update__an_interrupted_update_is_made_again_from_all_files(author, prepared_of):
    wanted = _change_everything(author)
    prepared = prepared_of("prepared")
    prepared.git("read-tree", "-m", "HEAD", "HEAD")
    (prepared.path / ".git" / "sandbox-sealed").write_text("")
    (prepared.path / ".git" / "index.lock").write_text("")
    (prepared.path / "gone.txt").unlink()
    prepared.git("symbolic-ref", "HEAD", "refs/heads/task-1")
    assert await prepared.update(wanted) == 0
    assert prepared.git("status", "--porcelain", "--branch") == "## task-1"
    assert prepared.git("branch", "--format=%(refname:short)") == "task-1"


async def test_update__a_checkout_without_history_has_all_files_of_its_new_commit(
    author, prepared_of
):
    """A merged branch began before the commit of the snapshot, whose sandbox has no older objects."""
    author.git("branch", "topic")
    author.write("keep.txt", "changed on main\n")
    known = author.commit("feat: change a file")
    author.git("checkout", "--quiet", "topic")
    author.commit("feat: work on a topic", topic__txt="topic\n")
    author.git("checkout", "--quiet", "main")
    author.git("merge", "--quiet", "--no-ff", "-m", "Merge the topic", "topic")
    author.git("checkout", "topic", "--", "keep.txt")
    wanted = author.commit("fix: restore the file")
    prepared = prepared_of("prepared", known)
    prepared.forget_history()
    assert await prepared.update(wanted, is_shallow=True) == 0
    assert not prepared.looked_at_all_files
    assert prepared.git("status", "--porcelain", "--branch") == "## task-1"
    assert prepared.git("fsck", "--connectivity-only", "--no-dangling") == ""
    assert prepared.git("log", "--format=%H") == wanted
    assert (prepared.path / "keep.txt").read_text() == "keep\n" * 20
