"""The endpoint in the sandbox: runs our program there and exchanges files with it."""

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
_DIRECTORY = "/tmp/.workspace-side"  # noqa: S108 # in the sandbox
_PREPARE = f"""[ -w {ROOT} ] || sudo -n install -d -o "$(id -u)" -g "$(id -g)" {ROOT} || exit
command -v python3 >/dev/null || {{ echo "The sandbox has no python3, which synchronization needs." >&2; exit 1; }}
mkdir -p -m 700 {_DIRECTORY}"""
_ENTRIES = TypeAdapter(dict[str, Entry])
_OUTCOME = TypeAdapter(Outcome)
_PATHS = TypeAdapter(list[str])
_MAIN = (
    "import sys\nfrom sandbox_client.workspace.endpoint.program import main\nmain(*sys.argv[1:])\n"
)
_INVALID_LIST = "The sandbox returned an invalid file list."


class RemoteEndpointError(Exception):
    """An operation in the sandbox failed; the text says why."""


class RemoteEndpoint:
    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox

    async def prepare(self) -> None:
        """Upload the endpoint program. It stays: removing it could resume a sandbox that was paused meanwhile."""
        await self.run(_PREPARE)
        await self.sandbox.files.write(f"{_DIRECTORY}/side.pyz", endpoint_program())

    async def run(self, script: str, **envs: str) -> str:
        """Run a shell command in the sandbox and return its stdout."""
        done = await self.sandbox.run(script, envs=envs)
        if done.exit_code != 0:
            raise RemoteEndpointError(done.stderr.strip() or f"{script}: {done.state_reason}")
        return done.stdout

    async def scan(self, rules: Sequence[Rule], known: Mapping[str, Entry]) -> dict[str, Entry]:
        """List the entries in the sandbox; ignored paths are dropped even if the sandbox reports them."""
        request = {"rules": rules, "known": dump_entries(known)}
        try:
            found = _ENTRIES.validate_json(await self._request("scan", request))
        except ValidationError as error:
            raise RemoteEndpointError(_INVALID_LIST) from error
        ours = Rules(rules)
        return {
            path: entry
            for path, entry in found.items()
            if not ours.is_ignored(path, is_directory=entry.kind == "directory")
        }

    async def find_unreadable(self, rules: Sequence[Rule]) -> list[str]:
        """List synchronized paths that are unreadable in the sandbox."""
        try:
            return _PATHS.validate_json(await self._request("unreadable", {"rules": rules}))
        except ValidationError as error:
            raise RemoteEndpointError(_INVALID_LIST) from error

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
