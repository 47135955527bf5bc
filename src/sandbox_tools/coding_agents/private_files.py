import json
import os
import uuid
from pathlib import Path
from typing import Any

from sandbox_tools.coding_agents.agent import RunContext


def write_private_file(name: str, document: dict[str, Any], context: RunContext) -> Path:
    """Write a file readable by this user only: arguments would expose tokens in process lists."""
    directory = context.state
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = directory / name
    new = directory / f"{name}.{uuid.uuid4().hex}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as written:
        json.dump(document, written)
    new.replace(file)
    return file
