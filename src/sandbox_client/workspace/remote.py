"""The sandbox's side of a shared directory: our own program there, and what it is told and tells, as files."""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sandbox_client import AsyncSandbox
from sandbox_client.workspace import endpoint
from sandbox_client.workspace.endpoint.applier import Outcome
from sandbox_client.workspace.endpoint.entries import Change, Entry, dump_entries
from sandbox_client.workspace.endpoint.ignore import Rule, Rules

ROOT = "/workspace"
_DIRECTORY = "/tmp/.workspace-side"  # noqa: S108 # in the sandbox, which is its user's alone
_PREPARE = f"""[ -w {ROOT} ] || sudo -n install -d -o "$(id -u)" -g "$(id -g)" {ROOT} || exit
command -v python3 >/dev/null || {{ echo "The sandbox has no python3, which carries files over." >&2; exit 1; }}
mkdir -p -m 700 {_DIRECTORY}"""
_ENTRIES = TypeAdapter(dict[str, Entry])
_OUTCOME = TypeAdapter(Outcome)
_PATHS = TypeAdapter(list[str])
_MAIN = (
    "import sys\nfrom sandbox_client.workspace.endpoint.program import main\nmain(*sys.argv[1:])\n"
)
_NOT_UNDERSTOOD = "What it tells of its files is not to be understood."


class RemoteEndpointError(Exception):
    """The sandbox could not do its part; the text says why."""


class RemoteEndpoint:
    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox

    async def prepare(self) -> None:
        """Have there what is needed, which stays: to remove it would wake a sandbox that was paused meanwhile."""
        await self.run(_PREPARE)
        await self.sandbox.files.write(f"{_DIRECTORY}/side.pyz", endpoint_program())

    async def run(self, script: str, **envs: str) -> str:
        """Run a command line there; gives what it wrote."""
        done = await self.sandbox.run(script, envs=envs)
        if done.exit_code != 0:
            raise RemoteEndpointError(done.stderr.strip() or f"{script}: {done.state_reason}")
        return done.stdout

    async def scan(self, rules: Sequence[Rule], known: Mapping[str, Entry]) -> dict[str, Entry]:
        """Tell what is there; what does not belong is not believed to be there, whatever is told."""
        request = {"rules": rules, "known": dump_entries(known)}
        try:
            found = _ENTRIES.validate_json(await self._request("scan", request))
        except ValidationError as error:
            raise RemoteEndpointError(_NOT_UNDERSTOOD) from error
        ours = Rules(rules)
        return {
            path: entry
            for path, entry in found.items()
            if not ours.is_ignored(path, is_directory=entry.kind == "directory")
        }

    async def find_unreadable(self, rules: Sequence[Rule]) -> list[str]:
        """List what belongs and may not be read there."""
        try:
            return _PATHS.validate_json(await self._request("unreadable", {"rules": rules}))
        except ValidationError as error:
            raise RemoteEndpointError(_NOT_UNDERSTOOD) from error

    async def pack(self, changes: Sequence[Change], changeset_file: Path) -> None:
        await self._send("pack", [asdict(change) for change in changes])
        await self.sandbox.files.download(f"{_DIRECTORY}/answer", changeset_file)

    async def apply(self, changeset_file: Path) -> Outcome:
        await self.sandbox.files.upload(changeset_file, f"{_DIRECTORY}/request")
        await self._execute("apply")
        return _OUTCOME.validate_json(await self._answer())

    async def _request(self, action: str, request: Any) -> bytes:
        await self._send(action, request)
        return await self._answer()

    async def _send(self, action: str, request: Any) -> None:
        await self.sandbox.files.write(f"{_DIRECTORY}/request", json.dumps(request).encode())
        await self._execute(action)

    async def _answer(self) -> bytes:
        return await self.sandbox.files.read(f"{_DIRECTORY}/answer")

    async def _execute(self, action: str) -> None:
        await self.run(f"cd {_DIRECTORY} && exec python3 side.pyz {action} {ROOT} request answer")


def endpoint_program() -> bytes:
    """Zip the endpoint's modules into one file that any Python runs."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as program:
        package = endpoint.__name__.replace(".", "/")
        for above in ("sandbox_client", "sandbox_client/workspace"):
            program.writestr(f"{above}/__init__.py", "")
        for module in Path(endpoint.__path__[0]).glob("*.py"):
            program.writestr(f"{package}/{module.name}", module.read_bytes())
        program.writestr("__main__.py", _MAIN)
    return packed.getvalue()
