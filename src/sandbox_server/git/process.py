import asyncio
import base64
import os
import re
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from shutil import which

from sandbox_server.domain.errors import GitError, GitTimedOut, GitUnavailable
from sandbox_server.domain.tasks.forges import GitCredential
from sandbox_server.git.remote_failures import remote_failure

OLDEST_GIT = (2, 38)
"""The first one that merges without files (`merge-tree --write-tree`)."""

_VERSION = re.compile(r"git version (\d+)\.(\d+)")
_PART = 256 * 1024
_LAST_WORDS = 4000
_BLOCK = 512  # of `ulimit -f`

# A child of git inherits these limits. `exec`: the process that is killed is git itself.
_LIMITED = 'ulimit -v "$1"; ulimit -t "$2"; ulimit -f "$3"; shift 3; exec git "$@"'

_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.askPass": "",
    "core.bigFileThreshold": "16m",
    "core.quotePath": "false",
    "core.packedGitWindowSize": "64m",
    "core.packedGitLimit": "512m",
    "credential.helper": "",
    "fetch.unpackLimit": "1",
    "gc.auto": "0",
    "http.followRedirects": "false",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "60",
    "maintenance.auto": "false",
    "pack.deltaCacheSize": "128m",
    "pack.threads": "1",
    "pack.windowMemory": "256m",
    "submodule.recurse": "false",
}


@dataclass(frozen=True, kw_only=True)
class GitLimits:
    """Bounds of one git process and its children."""

    timeout: timedelta = timedelta(minutes=2)
    output: int = 64 * 2**20
    memory: int = 4 * 2**30
    """Of address space per process, mapped packs included."""
    file_size: int = 64 * 2**30


DEFAULT_LIMITS = GitLimits()


@dataclass(frozen=True, kw_only=True)
class GitOutput:
    """Output and exit code of git."""

    exit_code: int
    stdout: bytes
    stderr: str
    truncated: bool = False

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace").strip()

    @property
    def lines(self) -> list[str]:
        return self.stdout.decode(errors="replace").splitlines()


async def run_git(
    *args: str,
    directory: Path | None = None,
    credential: GitCredential | None = None,
    stdin: bytes | None = None,
    envs: Mapping[str, str] | None = None,
    limits: GitLimits = DEFAULT_LIMITS,
    accept: Collection[int] = (0,),
    truncate: bool = False,
) -> GitOutput:
    """Run the system's git within limits; `directory` is a bare repository.

    Git sees no configuration but ours, runs no hooks, asks for nothing and speaks HTTP only. Output beyond its limit is an
    error, or is cut off with `truncate`.
    """
    environment = {**_environment(directory, credential), **(envs or {})}
    async with _running(args, environment, limits, has_input=stdin is not None) as process:
        try:
            async with asyncio.timeout(limits.timeout.total_seconds()):
                said = await _converse(process, stdin, most=limits.output)
        except TimeoutError:
            raise GitTimedOut(_doing(args), limits.timeout) from None
    output = GitOutput(
        exit_code=process.returncode or 0,
        stdout=said.stdout,
        stderr=_without_secrets(said.stderr, credential),
        truncated=said.truncated,
    )
    if output.truncated:
        if truncate:
            return output
        raise GitError(_doing(args), f"its output has more than {limits.output} bytes")
    if output.exit_code not in accept:
        raise _failure(args, output, is_remote=credential is not None)
    return output


@asynccontextmanager
async def open_git(
    *args: str,
    directory: Path | None = None,
    envs: Mapping[str, str] | None = None,
    limits: GitLimits = DEFAULT_LIMITS,
) -> AsyncIterator[Process]:
    """Run git with pipes, for what is too large to hold; it is killed when the block ends."""
    environment = {**_environment(directory, None), **(envs or {})}
    async with _running(args, environment, limits, has_input=True) as process:
        yield process


@dataclass(frozen=True, kw_only=True)
class _Said:
    stdout: bytes
    stderr: str
    truncated: bool


@asynccontextmanager
async def _running(
    args: tuple[str, ...], environment: Mapping[str, str], limits: GitLimits, *, has_input: bool
) -> AsyncIterator[Process]:
    bounds = (
        str(limits.memory >> 10),
        str(int(limits.timeout.total_seconds())),
        str(limits.file_size // _BLOCK),
    )
    if which("git", path=environment["PATH"]) is None:
        raise GitUnavailable
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _LIMITED, "git", *bounds, *args),
        stdin=PIPE if has_input else DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd="/",
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # git's own children, such as git-remote-https, are in its session.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


async def _converse(process: Process, stdin: bytes | None, *, most: int) -> _Said:
    async with asyncio.TaskGroup() as group:
        heard = group.create_task(_read(process, most))
        words = group.create_task(_read_end(process))
        if stdin is not None:
            group.create_task(_feed(process, stdin))
        await process.wait()
    stdout, truncated = heard.result()
    return _Said(stdout=stdout, stderr=words.result(), truncated=truncated)


async def _read(process: Process, most: int) -> tuple[bytes, bool]:
    assert process.stdout is not None
    content = bytearray()
    while part := await process.stdout.read(_PART):
        content += part
        if len(content) > most:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return bytes(content[:most]), True
    return bytes(content), False


async def _read_end(process: Process) -> str:
    """Read all of stderr, and keep its last bytes however small the pieces are in which it arrives."""
    assert process.stderr is not None
    kept = bytearray()
    while part := await process.stderr.read(_LAST_WORDS):
        kept += part
        del kept[:-_LAST_WORDS]
    return kept.decode(errors="replace")


async def _feed(process: Process, content: bytes) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):  # it ended early, and its exit code says why
        for start in range(0, len(content), _PART):
            process.stdin.write(content[start : start + _PART])
            await process.stdin.drain()
    process.stdin.close()


def _environment(directory: Path | None, credential: GitCredential | None) -> dict[str, str]:
    config = {**_CONFIG, **_login(credential)}
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": "https:http",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(config)),
    }
    if directory is not None:
        environment["GIT_DIR"] = str(directory)
    for number, (name, value) in enumerate(config.items()):
        environment[f"GIT_CONFIG_KEY_{number}"] = name
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def _login(credential: GitCredential | None) -> Mapping[str, str]:
    """Send the credential to the repository's own URL only, by the environment: command lines are public."""
    if credential is None or credential.password is None:
        return {}
    return {f"http.{credential.url}.extraHeader": f"Authorization: Basic {_basic(credential)}"}


def _basic(credential: GitCredential) -> str:
    pair = f"{credential.username or 'git'}:{credential.password}"
    return base64.b64encode(pair.encode()).decode()


def _without_secrets(said: str, credential: GitCredential | None) -> str:
    if credential is not None and credential.password:
        said = said.replace(credential.password, "***").replace(_basic(credential), "***")
    return said


def _failure(args: tuple[str, ...], output: GitOutput, *, is_remote: bool) -> GitError:
    said = output.stderr.strip() or f"exit code {output.exit_code}"
    found = remote_failure(_doing(args), said) if is_remote else None
    return found or GitError(_doing(args), said)


def _doing(args: tuple[str, ...]) -> str:
    return args[0]


def find_git_version() -> tuple[int, int] | None:
    """Find the version of the system's git; None if there is none."""
    try:
        said = subprocess.run(
            ["git", "version"],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    except FileNotFoundError:
        return None
    found = _VERSION.match(said)
    return None if found is None else (int(found[1]), int(found[2]))
