import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sandbox_server.domain.errors import CommitNotFound, GitTimedOut, RemoteRefused
from sandbox_server.domain.errors.storable_text import both_ends, storable
from sandbox_server.domain.tasks.forges import GitCredential
from sandbox_server.git.bundles import is_ref
from sandbox_server.git.objects import GitObjects, sha_of
from sandbox_server.git.process import GitLimits, GitOutput, run_git
from sandbox_server.git.remote_failures import remote_failure

_PUSH = GitLimits(timeout=timedelta(minutes=10), output=2**20)
_LIST = GitLimits(timeout=timedelta(seconds=60), output=32 * 2**20)
_EXIT_CODES = (0, 1, 128)
_LONGEST_REASON = 1000
_STATUS = re.compile(r"^(?P<flag>[ +\-*!=])\t(?P<refs>[^\t]+)\t(?P<said>.*)$", re.MULTILINE)
_REASON = re.compile(r"\[[a-z ]+\]\s*(?:\((?P<reason>.*)\))?")
NO_OPTIONS = "does not support push options"
_STALE = re.compile(r"stale info|fetch first|non-fast-forward", re.IGNORECASE)


class PushResult(StrEnum):
    PUSHED = "pushed"
    UP_TO_DATE = "up-to-date"
    STALE = "stale"
    """The branch is not where it was expected: somebody else has pushed."""
    REJECTED = "rejected"
    """The remote does not take it as it is: a hook, a protected branch, a missing permission."""
    UNREACHABLE = "unreachable"
    """Whether the push had an effect is not known: ask `ls_remote`."""


@dataclass(frozen=True, kw_only=True)
class PushOutcome:
    """The outcome of a push, with the remote's reason."""

    result: PushResult
    reason: str = ""

    @property
    def is_done(self) -> bool:
        return self.result in (PushResult.PUSHED, PushResult.UP_TO_DATE)


async def push(
    repository: GitObjects,
    credential: GitCredential,
    ref: str,
    new: str,
    expected_old: str | None,
    *,
    options: Sequence[str] = (),
) -> PushOutcome:
    """Push one commit to one branch, which is overwritten only where it is expected to be."""
    full = full_ref(ref)
    lease = f"--force-with-lease={full}:{'' if expected_old is None else sha_of(expected_old)}"
    told = [f"--push-option={option}" for option in options]
    command = ("push", "--porcelain", "--no-verify", lease, *told, credential.url)
    try:
        said = await run_git(
            *command,
            f"{sha_of(new)}:{full}",
            directory=repository.path,
            credential=credential,
            accept=_EXIT_CODES,
            limits=_PUSH,
        )
    except GitTimedOut as error:
        return PushOutcome(result=PushResult.UNREACHABLE, reason=error.said)
    return _outcome(said)


async def list_remote(credential: GitCredential, *refs: str) -> Mapping[str, str]:
    """List refs of a remote with their commits; all branches if none are named."""
    named = [full_ref(ref) for ref in refs]
    options = () if named else ("--heads",)
    said = await run_git(
        "ls-remote", *options, "--", credential.url, *named, credential=credential, limits=_LIST
    )
    pairs = (line.split("\t", 1) for line in said.lines if "\t" in line)
    return {ref: sha for sha, ref in pairs if not named or ref in named}


async def list_pull_heads(credential: GitCredential, pattern: str) -> Mapping[int, str]:
    """List the heads of the pull requests that a remote shows as refs, by their numbers."""
    said = await run_git(
        "ls-remote", "--", credential.url, pattern, credential=credential, limits=_LIST
    )
    before, _, after = pattern.partition("*")
    pairs = (line.split("\t", 1) for line in said.lines if "\t" in line)
    numbers = ((ref.removeprefix(before).removesuffix(after), sha) for sha, ref in pairs)
    return {int(number): sha for number, sha in numbers if number.isdecimal()}


def full_ref(name: str) -> str:
    """Return the full name of a branch or ref."""
    full = name if name.startswith("refs/") else f"refs/heads/{name}"
    if not is_ref(full):
        raise CommitNotFound(name)
    return full


def _outcome(said: GitOutput) -> PushOutcome:
    found = _STATUS.search(said.text)
    if found is None:
        return _without_answer(said)
    match found["flag"]:
        case "=":
            return PushOutcome(result=PushResult.UP_TO_DATE)
        case "!":
            return _rejection(found["said"], said.stderr)
        case _:
            return PushOutcome(result=PushResult.PUSHED)


def _rejection(status: str, stderr: str) -> PushOutcome:
    """Join the ref's own reason and what the remote printed."""
    inner = _REASON.match(status)
    reason = (inner and inner["reason"]) or status
    if _STALE.search(reason):
        return PushOutcome(result=PushResult.STALE, reason=reason)
    if "remote failure" in status or "no response" in status:
        return PushOutcome(result=PushResult.UNREACHABLE, reason=reason)
    told = [
        line.removeprefix("remote:").strip() for line in stderr.splitlines() if "remote:" in line
    ]
    words = " ".join([reason, *filter(None, told)])
    return PushOutcome(
        result=PushResult.REJECTED, reason=both_ends(storable(words), _LONGEST_REASON)
    )


def _without_answer(said: GitOutput) -> PushOutcome:
    failure = remote_failure("push", said.stderr)
    refused = isinstance(failure, RemoteRefused) or NO_OPTIONS in said.stderr
    result = PushResult.REJECTED if refused or failure is None else PushResult.UNREACHABLE
    return PushOutcome(result=result, reason=storable(said.stderr.strip())[-_LONGEST_REASON:])
