import asyncio
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from sandbox_engine.commands.transcript import OnLine
from sandbox_engine.container.search_path import STANDARD_PATH, with_standard
from sandbox_engine.images.image import Image
from sandbox_engine.rootfs.accounts import Account, UnknownUser
from sandbox_engine.sandboxes import shell
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.sandboxes.shell import Finished, NotStarted, ShellCommand
from sandbox_engine.templates.building.plan import Step

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(
    rf"\$(?:(?P<bare>{_NAME})|\{{(?P<name>{_NAME})(?::(?P<mode>[-+])(?P<word>[^}}]*))?\}})"
)


FindFiles = Callable[[str], Path]

_ROOT = "root"
_ADD_USER = (
    "if command -v useradd >/dev/null; then useradd --create-home --shell /bin/bash {name}; "
    "else adduser -D {name}; fi"  # busybox
)
_TAIL_CHARACTERS = 1_000
# A step ends with its command, as with Docker; daemons that it started are killed.
_LINGER = timedelta(seconds=1)


class StepProblem(Exception):
    """A step failed; the message is the reason."""


@dataclass(frozen=True)
class StepContext:
    """Context of a step: a sandbox with the image's files and settings."""

    sandbox: Sandbox
    image: Image
    files: FindFiles
    report: OnLine

    @property
    def account(self) -> Account:
        """The image's current user."""
        return self.sandbox.accounts.find(self.image.user)

    def expand(self, text: str) -> str:
        """Expand variables of the image."""
        return expand(text, {"PATH": STANDARD_PATH, **self.image.env})

    def resolve(self, path: str, *, start: str) -> str:
        """Make a path absolute, relative to the working directory or else `start`."""
        path = posixpath.join("/", self.image.workdir or start, path)
        return "/" + posixpath.normpath(path).lstrip("/")

    async def run(self, script: str, user: str, *, workdir: str = "/") -> Finished:
        """Run a command line with the image's environment."""
        envs = dict(self.image.env)
        if "PATH" in envs:
            envs["PATH"] = with_standard(envs["PATH"])
        command = ShellCommand(script, user, workdir, envs)
        with self.sandbox.starting_up():
            return await shell.run(self.sandbox, command, linger=_LINGER, on_line=self.report)


def argument(step: Step, position: int = 0) -> str:
    """Return an argument of a step; empty if it is missing."""
    return step.args[position] if position < len(step.args) else ""


def set_environment(step: Step, image: Image) -> Image:
    """Add environment variables, which may refer to earlier ones."""
    if not step.args or len(step.args) % 2:
        raise StepProblem(f"{step.kind} requires both a key and value arguments")
    if wrong := [name for name in step.args[::2] if not name or "=" in name]:
        raise StepProblem(f"invalid environment variable name: {wrong[0]!r}")
    known = {"PATH": STANDARD_PATH, **image.env}
    pairs = zip(step.args[::2], step.args[1::2], strict=True)
    return replace(image, env={**image.env, **{key: expand(text, known) for key, text in pairs}})


async def run(step: Step, site: StepContext) -> Image:
    """Run a command line."""
    script, user = argument(step), argument(step, 1) or site.image.user
    if not script:
        raise StepProblem("RUN requires command argument")
    failed = f"failed to run command '{script}'"
    try:
        finished = await site.run(script, user, workdir=site.image.workdir)
    except NotStarted as error:
        raise StepProblem(f"{failed}: {error}") from error
    if not finished.succeeded:
        output = finished.output[-_TAIL_CHARACTERS:].strip()
        raise StepProblem(f"{failed}: {finished.ended.error}" + (f": {output}" if output else ""))
    return site.image


async def change_workdir(step: Step, site: StepContext) -> Image:
    """Set the working directory, creating it for the user if missing."""
    if not argument(step):
        raise StepProblem("WORKDIR requires a path argument")
    path = site.resolve(site.expand(argument(step)), start="/")
    try:
        make = site.sandbox.root.make_directories
        await asyncio.to_thread(make, path, site.account.owner)
    except (OSError, UnknownUser) as error:
        raise StepProblem(f"failed to create workdir: {path}: {error}") from error
    return replace(site.image, workdir=path)


async def change_user(step: Step, site: StepContext) -> Image:
    """Set the user, creating it if missing."""
    name = site.expand(argument(step)).partition(":")[0]
    if not name:
        raise StepProblem("USER requires a username argument")
    accounts = site.sandbox.accounts
    if name.isdecimal():
        name = accounts.user_name(int(name))
    try:
        accounts.find(name)
    except UnknownUser:
        await _add_user(name, site)
    return replace(site.image, user=name)


async def _add_user(name: str, site: StepContext) -> None:
    try:
        finished = await site.run(_ADD_USER.format(name=shlex.quote(name)), _ROOT)
    except NotStarted as error:
        raise StepProblem(f"failed to create user: {error}") from error
    if not finished.succeeded:
        raise StepProblem(f"failed to create user: {finished.ended.error}")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand `$NAME`, `${NAME}`, `${NAME:-word}` and `${NAME:+word}`; nothing is executed."""

    def value(reference: re.Match[str]) -> str:
        found = variables.get(reference["bare"] or reference["name"], "")
        match reference["mode"]:
            case "-":
                return found or reference["word"]
            case "+":
                return reference["word"] if found else ""
        return found

    return _REFERENCE.sub(value, text)
