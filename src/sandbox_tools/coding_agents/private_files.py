import json
import os
import uuid
from pathlib import Path
from typing import Any

from sandbox_tools.coding_agents.agent import RunContext


def write_private_file(name: str, document: dict[str, Any], context: RunContext) -> Path:
    """Replace a file of this user's alone: an argument would show a token to whoever lists processes."""
    directory = context.state
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = directory / name
    new = directory / f"{name}.{uuid.uuid4().hex}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as written:
        json.dump(document, written)
    new.replace(file)
    return file
