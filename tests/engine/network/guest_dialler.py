"""Sandboxes that try to reach places; a place is as the guest program has it."""

import json
import shlex
from typing import Any

from e2b import AsyncSandbox

from tests.engine.engine_process import REPOSITORY

GUESTS = REPOSITORY / "tests/engine/guests"


async def equip(sandbox: AsyncSandbox) -> AsyncSandbox:
    """Give a sandbox the guest programs."""
    for script in GUESTS.glob("*.py"):
        await sandbox.files.write(f"/opt/{script.name}", script.read_text())
    return sandbox


async def dial(sandbox: AsyncSandbox, *places: str, **options: Any) -> dict[str, str]:
    """Have the sandbox try places; gives what came of each."""
    command = shlex.join(["python3", "/opt/dialler.py", *places])
    told: dict[str, str] = json.loads((await sandbox.commands.run(command, **options)).stdout)
    return told


async def is_refused(sandbox: AsyncSandbox, *places: str) -> bool:
    """Tell that nothing answers the sandbox there, and TCP not even with silence."""
    briefly = {"PATIENCE": "1"}
    for user in ("user", "root"):
        for place, outcome in (await dial(sandbox, *places, user=user, envs=briefly)).items():
            if place.startswith("tcp:"):
                assert outcome == "ConnectionRefusedError", place
            else:  # the kernel says no by ICMP, but not each time
                assert outcome in ("ConnectionRefusedError", "OSError", "TimeoutError"), place
    return True
