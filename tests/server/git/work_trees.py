"""Repositories on this machine, made and looked at with git itself."""

import subprocess
from pathlib import Path

_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


def git(directory: Path, *args: str, stdin: bytes | None = None) -> str:
    """Run git in a directory, without anybody's configuration."""
    done = subprocess.run(
        ["git", *args],
        cwd=directory,
        env=_ENVIRONMENT,
        input=stdin,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


class WorkTree:
    """A clone that a person works in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        git(path, "init", "--quiet", "--initial-branch=main")

    def git(self, *args: str) -> str:
        return git(self.path, *args)

    def write(self, name: str, content: str | bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, subject: str, **files: str | bytes) -> str:
        """Commit files, `__` in whose names stands for a dot and `___` for a slash."""
        for name, content in files.items():
            self.write(name.replace("___", "/").replace("__", "."), content)
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def push(self, target: Path, *refs: str) -> None:
        self.git("push", "--quiet", "--force", str(target), *(refs or ("main",)))

    def bundle(self, base: str, ref: str = "main") -> bytes:
        """Make a bundle as git does, of which the ref stands for a save."""
        self.git("update-ref", "refs/sandbox/save", ref)
        self.git("bundle", "create", "--quiet", "work.bundle", "refs/sandbox/save", f"^{base}")
        content = (self.path / "work.bundle").read_bytes()
        (self.path / "work.bundle").unlink()
        return content
