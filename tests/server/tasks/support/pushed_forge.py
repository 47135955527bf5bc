"""A git server that opens pull requests by push options alone, as GitLab and Forgejo do."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.forges.support.git_server import GitAccessOf, GitServer, git, running_git_server

REPOSITORY = "acme/widgets"
TOKEN = "only-for-git"
_HOOK = Path(__file__).parent / "push_options_hook.py"


class PushedForge:
    """One repository, and what its pushes have told."""

    def __init__(self, server: GitServer, path: Path) -> None:
        self.server = server
        self.path = path

    def head(self, ref: str) -> str:
        return git("-C", str(self.path), "rev-parse", "--verify", "--quiet", ref, check=False)

    def branches(self) -> list[str]:
        return self.server.branches(REPOSITORY)

    def options(self) -> list[list[str]]:
        """List the options of each push of work."""
        told = self.path / "push-options"
        lines = told.read_text().splitlines() if told.exists() else []
        return [line.split("\t") for line in lines]

    def refuse_options(self) -> None:
        git("-C", str(self.path), "config", "receive.advertisePushOptions", "false")

    def forge(self, kind: str) -> dict[str, object]:
        """Describe the forge as `PUT /v1/forges/{name}` takes it."""
        only = {} if kind == "git" else {"git_only": True}
        return {"kind": kind, "git_url": self.server.url, "token": TOKEN, **only}


@contextmanager
def pushed_forge_at(directory: Path) -> Iterator[PushedForge]:
    def judge(password: str | None, _repository: str) -> GitAccessOf:
        return GitAccessOf(read=password == TOKEN, write=password == TOKEN)

    directory.mkdir()
    with running_git_server(directory, judge) as server:
        path = server.add_repository(REPOSITORY)
        for hook in (path / "hooks").iterdir():
            hook.unlink()
        clone = str(directory / "clone")
        git("clone", "--quiet", server.url_of(REPOSITORY, TOKEN), clone)
        (Path(clone) / "README.md").write_text("# Widgets\n")
        git("-C", clone, "add", ".")
        git("-C", clone, "commit", "--quiet", "-m", "Start")
        git("-C", clone, "push", "--quiet", "origin", "HEAD:refs/heads/main")
        hook = path / "hooks" / "post-receive"
        hook.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{_HOOK}"\n')
        hook.chmod(0o755)
        yield PushedForge(server, path)
