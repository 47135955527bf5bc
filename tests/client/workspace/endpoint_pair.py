"""Two directories on this machine that are brought together as a plan says."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sandbox_client.workspace.endpoint import program
from sandbox_client.workspace.endpoint.entries import Change, Entry, load_entries
from sandbox_client.workspace.gitignore import rules_of
from sandbox_client.workspace.plan import Direction, Plan, make_plan
from sandbox_client.workspace.remote import endpoint_program
from sandbox_client.workspace.sync_state import SyncState


class EndpointPair:
    def __init__(self, scratch: Path) -> None:
        self.near, self.far = scratch / "near", scratch / "far"
        self.scratch = scratch / "scratch"
        for directory in (self.near, self.far, self.scratch):
            directory.mkdir()
        self.state = SyncState(scratch / "ledger", "a sandbox")

    def scan(self, root: Path) -> dict[str, Entry]:
        self._ask({"rules": rules_of(self.near), "known": {}})
        self.act("scan", root, "request", "answer")
        return load_entries(self._answer())

    def plan(self, direction: Direction = Direction.BOTH) -> Plan:
        return make_plan(self.state.base, self.scan(self.near), self.scan(self.far), direction)

    def synchronize(self) -> dict[str, str]:
        """Make all changes that a look at both sides asks for; tells which were refused."""
        near, far = self.scan(self.near), self.scan(self.far)
        plan = make_plan(self.state.base, near, far, Direction.BOTH)
        for path in plan.same:
            self.state.set_common(path, near.get(path))
        refused = self.carry(plan.pull, self.far, self.near)
        return refused | self.carry(plan.push, self.near, self.far)

    def carry(self, changes: Sequence[Change], source: Path, target: Path) -> dict[str, str]:
        self._ask([asdict(change) for change in changes])
        self.act("pack", source, "request", "parcel")
        self.act("apply", target, "parcel", "answer")
        outcome = self._answer()
        self.state.record(map(Change.read, outcome["done"]))
        refused: dict[str, str] = outcome["refused"]
        return refused

    def act(self, act: str, root: Path, given: str, answer: str) -> None:
        program.main(act, str(root), str(self.scratch / given), str(self.scratch / answer))

    def _ask(self, request: object) -> None:
        (self.scratch / "request").write_text(json.dumps(request))

    def _answer(self) -> Any:
        return json.loads((self.scratch / "answer").read_text())


class ProgramPair(EndpointPair):
    """Runs the endpoint as a sandbox does: as a program with the standard library only."""

    def act(self, act: str, root: Path, given: str, answer: str) -> None:
        file = self.scratch / "side.pyz"
        file.write_bytes(endpoint_program())
        command = [sys.executable, "-I", str(file), act, str(root), given, answer]
        subprocess.run(command, cwd=self.scratch, check=True, timeout=60)
