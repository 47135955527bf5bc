"""The API's description in the repository."""

import json
from pathlib import Path
from typing import Any

from sandbox_server.app import describe

FILE = Path(__file__).parents[1] / "docs" / "openapi.json"


def read() -> dict[str, Any]:
    snapshot: dict[str, Any] = json.loads(FILE.read_text())
    return snapshot


def now() -> dict[str, Any]:
    """Generate the API's description from the code."""
    return describe()


def written() -> str:
    return json.dumps(now(), indent=2, ensure_ascii=False) + "\n"
