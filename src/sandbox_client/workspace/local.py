"""The endpoint on this machine."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox_client.workspace.endpoint import applier, changeset, scanner
from sandbox_client.workspace.endpoint.applier import Outcome
from sandbox_client.workspace.endpoint.entries import Change, Entry
from sandbox_client.workspace.endpoint.ignore import Rule, Rules
from sandbox_client.workspace.gitignore import rules_of


class LocalEndpoint:
    def __init__(self, root: Path, exclude: Sequence[str] = ()) -> None:
        self.root = root
        self._exclude = exclude

    async def rules(self) -> list[Rule]:
        return await asyncio.to_thread(rules_of, self.root, self._exclude)

    async def scan(self, rules: Sequence[Rule], known: Mapping[str, Entry]) -> dict[str, Entry]:
        return await asyncio.to_thread(scanner.scan, str(self.root), Rules(rules), known)

    async def pack(self, changes: Sequence[Change], changeset_file: Path) -> list[Change]:
        def pack() -> list[Change]:
            with changeset_file.open("wb") as file:
                return changeset.pack(str(self.root), changes, file)

        return await asyncio.to_thread(pack)

    async def apply(self, changeset_file: Path, expected: Sequence[Change]) -> Outcome:
        """Apply the expected changes only, whatever else the sandbox packed."""

        def apply() -> Outcome:
            by_path = {change.path: change for change in expected}
            with changeset_file.open("rb") as file:
                return applier.apply(str(self.root), file, by_path)

        return await asyncio.to_thread(apply)
