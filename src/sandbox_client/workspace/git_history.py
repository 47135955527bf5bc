"""Copies a project's git history to a sandbox once, and fetches commits made there as branches `sandbox/…`.

The directory `.git` itself is never synchronized: its configuration may contain passwords, and hooks written in the
sandbox would run on this machine.
"""

import asyncio
import os
import re
import shlex
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from sandbox_client.workspace.remote import ROOT, RemoteEndpoint

_OURS = "refs/remotes/sandbox/"
_HEADS = "refs/heads/"
_BRANCH = re.compile(r"(?P<commit>[0-9a-f]{40,64}) refs/heads/(?P<name>\S+)")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
# Every commit that something in the sandbox points to, with that thing's name; an annotated tag is followed.
# In a subshell: the login shell that runs it would run ~/.bash_logout at `exit`, and fail by that under `set -e`.
_LIST_TIPS = f"""if [ -e {ROOT}/.git ]; then (
set -e
cd {ROOT}
git for-each-ref --format='%(objecttype) %(objectname) %(refname)' {_HEADS} refs/tags
git for-each-ref --format='%(*objecttype) %(*objectname) %(refname)' refs/tags
git stash list --format='commit %H %gd'
if commit=$(git rev-parse --verify --quiet HEAD); then echo "commit $commit HEAD"; fi
); fi"""
_CAREFULLY = ("-c", "core.hooksPath=/dev/null", "-c", "fetch.fsckObjects=true")
_KEPT = ("user.name", "user.email")


class GitFailed(Exception):
    """git failed; the text is its error message."""


class GitHistory:
    def __init__(self, root: Path, remote: RemoteEndpoint) -> None:
        self._root = root
        self._remote = remote

    async def push(self) -> bool:
        """Copy the history to the sandbox, unless it has one."""
        if not await self._is_needed():
            return False
        with tempfile.TemporaryDirectory() as scratch:
            bundle = Path(scratch, "bundle")
            await self._git(
                "bundle", "create", "--quiet", str(bundle), "--branches", "--tags", "HEAD"
            )
            await self._remote.sandbox.files.upload(bundle, f"{ROOT}/.git-bundle")
        await self._remote.run(await self._unbundling())
        return True

    async def fetch(self) -> list[str]:
        """Fetch new commits from the sandbox; return the branches `sandbox/…` that are new or have moved."""
        if not await self._is_repository():
            return []
        theirs = await self._remote_branches()
        known = [commit for commit in set(theirs.values()) if await self._has(commit)]
        unknown = [name for name, commit in theirs.items() if commit not in known]
        if unknown:
            await self._fetch(unknown, known)
        return [name for name, commit in theirs.items() if await self._update_branch(name, commit)]

    async def find_unfetched(self) -> tuple[list[str], list[str]]:
        """Find refs with commits that are missing here: branches, and other refs that `fetch` does not get.

        A commit is here if a ref or HEAD reaches it; git removes others sooner or later.
        """
        listing = (line.split(" ", 2) for line in (await self._remote.run(_LIST_TIPS)).splitlines())
        tips = [fields for fields in listing if len(fields) == 3 and fields[0] == "commit"]  # noqa: PLR2004
        is_repository = await self._is_repository()
        branches: dict[str, str] = {}
        others: dict[str, str] = {}
        for _, commit, name in tips:
            if commit in branches or (is_repository and await self._is_kept(commit)):
                continue
            if is_repository and name.startswith(_HEADS):
                branches[commit] = name.removeprefix(_HEADS)
            else:
                others.setdefault(commit, name.removeprefix(_HEADS))
        return [*branches.values()], [*others.values()]

    async def _is_kept(self, commit: str) -> bool:
        if _COMMIT.fullmatch(commit) is None or not await self._has(commit):
            return False
        leading = await self._git("for-each-ref", "--count=1", "--contains", commit)
        return bool(leading) or await self._is_in(commit, "HEAD")

    async def _is_repository(self) -> bool:
        try:
            top = await self._git("rev-parse", "--show-toplevel")
            return Path(top) == self._root.resolve()
        except (GitFailed, FileNotFoundError):
            return False

    async def _is_needed(self) -> bool:
        if not await self._is_repository() or await self._is_shallow():
            return False
        there = await self._remote.run(f"[ -e {ROOT}/.git ] && echo there; command -v git || true")
        return "there" not in there.split() and bool(there) and bool(await self._commit_of("HEAD"))

    async def _is_shallow(self) -> bool:
        return await self._git("rev-parse", "--is-shallow-repository") == "true"

    async def _unbundling(self) -> str:
        branch = await self._git("rev-parse", "--symbolic-full-name", "HEAD")
        point = (
            f"git symbolic-ref HEAD {shlex.quote(branch)}"
            if branch.startswith(_HEADS)
            else f"git update-ref --no-deref HEAD {await self._commit_of('HEAD')}"
        )
        return "\n".join(
            [
                f"set -e; cd {ROOT}; git init --quiet",
                "git fetch --quiet --update-head-ok .git-bundle '+refs/*:refs/*'; rm .git-bundle",
                f"{point}; git reset --quiet",
                *[line async for line in self._configuration()],
            ]
        )

    async def _configuration(self) -> AsyncIterator[str]:
        for name in _KEPT:
            if value := await self._config(name):
                yield f"git config {name} {shlex.quote(value)}"
        for remote in (await self._git("remote")).split():
            url = _without_password(await self._config(f"remote.{remote}.url"))
            yield f"git remote add {shlex.quote(remote)} {shlex.quote(url)}"

    async def _config(self, name: str) -> str:
        try:
            return await self._git("config", "--get", name)
        except GitFailed:
            return ""

    async def _remote_branches(self) -> dict[str, str]:
        listing = f"git -C {ROOT} for-each-ref --format='%(objectname) %(refname)' {_HEADS}"
        listing = await self._remote.run(f"[ ! -e {ROOT}/.git ] || {listing}")
        found = [_BRANCH.fullmatch(line) for line in listing.splitlines()]
        return {match["name"]: match["commit"] for match in found if match is not None}

    async def _has(self, commit: str) -> bool:
        try:
            await self._git("cat-file", "-e", f"{commit}^{{commit}}")
        except GitFailed:
            return False
        return True

    async def _fetch(self, branches: list[str], known: list[str]) -> None:
        refs = " ".join(shlex.quote(_HEADS + name) for name in branches)
        without = " ".join(f"^{commit}" for commit in known)
        place = (await self._remote.run("mktemp")).strip()
        bundle = shlex.quote(place)
        await self._remote.run(f"git -C {ROOT} bundle create --quiet {bundle} {refs} {without}")
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, "bundle")
            await self._remote.sandbox.files.download(place, copy)
            heads = [_HEADS + name for name in branches]
            await self._git(
                "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", str(copy), *heads
            )
        await self._remote.run(f"rm {bundle}")

    async def _update_branch(self, name: str, commit: str) -> bool:
        """Move `sandbox/NAME` to their commit, unless a local branch contains it already."""
        before = await self._commit_of(_OURS + name)
        if commit == before or (not before and await self._is_in(commit, _HEADS + name)):
            return False
        await self._git("update-ref", _OURS + name, commit)
        return True

    async def _commit_of(self, ref: str) -> str:
        try:
            return await self._git("rev-parse", "--verify", "--quiet", ref)
        except GitFailed:
            return ""

    async def _is_in(self, commit: str, branch: str) -> bool:
        try:
            await self._git("merge-base", "--is-ancestor", commit, branch)
        except GitFailed:
            return False
        return True

    async def _git(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("git", "-C", str(self._root), *_CAREFULLY, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )
        output, errors = await process.communicate()
        if process.returncode:
            raise GitFailed(errors.decode(errors="replace").strip())
        return output.decode(errors="surrogateescape").strip()


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if "@" not in parts.netloc or parts.scheme not in ("http", "https"):
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
