import shlex
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sandbox_server.db.models import Task
from sandbox_server.domain.errors import CheckoutFailed, FileTooLarge, PathNotFound
from sandbox_server.git.bare import BareRepository
from sandbox_server.git.bundles import HEAD_REF, MAX_BUNDLE, SAVE_REF
from sandbox_server.git.work import SandboxWork
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

_LIMIT = timedelta(minutes=5)
_LARGEST_REPORT = 256 * 1024
_LAST_WORDS = 2000

# The checkout belongs to the agent: its hooks are not run.
_SETTLE: Final = r"""
export GIT_TERMINAL_PROMPT=0 LC_ALL=C
run() { git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c commit.gpgSign=false -c gc.auto=0 "$@"; }
cd "$TARGET" || exit 95
head=$(run rev-parse --quiet --verify 'HEAD^{commit}') || exit 95
if [ -n "$(run ls-files --unmerged | head -n 1)" ]; then echo unmerged; exit 0; fi
tip=$(run rev-parse --quiet --verify "refs/heads/$BRANCH^{commit}") || tip=$BASE
if [ "$(run symbolic-ref --quiet --short HEAD)" != "$BRANCH" ]; then
    if run merge-base --is-ancestor "$tip" "$head"; then
        run checkout --quiet -B "$BRANCH" || exit 96
    elif run merge-base --is-ancestor "$head" "$tip" && [ -z "$(run status --porcelain | head -n 1)" ]; then
        run checkout --quiet "$BRANCH" || exit 96
    else
        echo diverged; exit 0
    fi
fi
if [ -n "$(run status --porcelain | head -n 1)" ]; then
    run add --all && run commit --quiet --message "$MESSAGE" || exit 97
fi
echo "head $(run rev-parse HEAD)"
"""


_BRING: Final = r"""
set -eu
cd "$TARGET"
git index-pack --stdin --fix-thin <"$PACK" >/dev/null
rm -f "$PACK"
git update-ref "refs/remotes/origin/$BRANCH" "$SHA"
"""


@dataclass(frozen=True, kw_only=True)
class SettledBranch:
    """The branch of a task with everything committed, or why that was not possible."""

    head: str | None
    problem: str | None = None


_PROBLEMS = {
    "unmerged": "The agent left a merge with unresolved conflicts.",
    "diverged": "The agent left its work on a branch that does not follow the task's branch.",
}


class TaskCheckout:
    """Changes of a task's checkout by the server, between runs."""

    def __init__(self, work: SandboxWork) -> None:
        self._work = work

    async def find_head(self, used: UsableSandbox, task: Task) -> str | None:
        return (await self._work.head(used, task.directory)).head_sha

    async def settle(self, used: UsableSandbox, task: Task, *, message: str) -> SettledBranch:
        """Return to the task's branch and commit what is left; repeatable."""
        assert task.branch is not None
        envs = {
            "TARGET": task.directory,
            "BRANCH": task.branch,
            "BASE": task.base_sha or "",
            "MESSAGE": message,
        }
        inside = used.backend.inside(used.access)
        said = await inside.run_command(_SETTLE, timeout=_LIMIT, envs=envs)
        lines = said.output.decode(errors="replace").splitlines()
        for problem, text in _PROBLEMS.items():
            if problem in lines:
                return SettledBranch(head=None, problem=text)
        heads = [line.removeprefix("head ") for line in lines if line.startswith("head ")]
        if said.exit_code or not heads:
            raise CheckoutFailed(task.directory, "\n".join(lines)[-_LAST_WORDS:])
        return SettledBranch(head=heads[-1])

    async def adopt(
        self, used: UsableSandbox, task: Task, repository: BareRepository, sha: str
    ) -> None:
        """Put the branch in the sandbox to a commit of the server: a merge, or reworded commits."""
        header = (
            f"# v2 git bundle\n-{task.base_sha} base\n"
            f"{sha} {SAVE_REF}\n{sha} {HEAD_REF}{task.branch}\n\n"
        )
        pack = await _pack(repository, sha, task)
        await self._work.restore(used, task.directory, header.encode() + pack)

    async def bring(
        self, used: UsableSandbox, task: Task, repository: BareRepository, sha: str
    ) -> None:
        """Put somebody else's commits into the checkout as the remote branch, without touching files."""
        inside, path = used.backend.inside(used.access), f"{task.directory}/.git/{sha}.incoming"
        await self.write_file(used, path, await _pack(repository, sha, task))
        envs = {"TARGET": task.directory, "PACK": path, "SHA": sha, "BRANCH": task.branch or ""}
        said = await inside.run_command(_BRING, timeout=_LIMIT, envs=envs)
        if said.exit_code:
            words = said.output[-_LAST_WORDS:].decode(errors="replace")
            raise CheckoutFailed(task.directory, words)

    async def write_file(self, used: UsableSandbox, path: str, content: bytes) -> None:
        """Create or replace a file, with its parent directories."""

        async def parts() -> AsyncGenerator[bytes, None]:
            yield content

        transfers = used.backend.transfers(used.access, user=None)
        await transfers.upload(path, parts(), length=len(content))

    async def take_file(self, used: UsableSandbox, task: Task, name: str) -> str | None:
        """Read a file that the agent has written for the server."""
        path = f"{task.directory}/{name}"
        with suppress(PathNotFound, FileTooLarge):
            content = await used.backend.inside(used.access).read_file(path, limit=_LARGEST_REPORT)
            return content.decode(errors="replace").strip() or None
        return None

    async def remove_files(self, used: UsableSandbox, task: Task, *names: str) -> None:
        """Remove files of earlier runs, so that they are not taken for those of this one."""
        paths = " ".join(shlex.quote(f"{task.directory}/{name}") for name in names)
        await used.backend.inside(used.access).run_command(f"rm -f -- {paths}", timeout=_LIMIT)


async def _pack(repository: BareRepository, sha: str, task: Task) -> bytes:
    """Pack what a commit has above the base of the task."""
    said = await repository.git(
        *("pack-objects", "--revs", "--stdout", "--thin", "--quiet"),
        stdin=f"{sha}\n^{task.base_sha}\n".encode(),
        most=MAX_BUNDLE,
    )
    return said.stdout
