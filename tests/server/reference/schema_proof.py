"""Runs schemathesis against a server with the OpenAPI snapshot."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from reference import snapshot

HOOKS = Path(__file__).parent / "hooks.py"
EXCLUDED = {
    "watch_files": "a stream that ends with its sandbox",
    "follow_agent_run": "the same of a run",
    "attach_to_agent_server": "a WebSocket",
    "send_to_tool_server": "the answer is the tool server's",
    "listen_to_tool_server": "the same",
    "end_tool_session": "the same",
    "update_backend": "would drain the only one",
}
CHECKS = {
    "not_a_server_error": False,  # replaced by a check in hooks.py
    "positive_data_acceptance": False,  # schemas cannot express, for example, which backends exist
    "use_after_free": False,  # deleted resources are returned until they expire
}


def run_schemathesis(url: str, key: str, scratch: Path, *options: str) -> str | None:
    """Test the operations with valid and invalid data; returns the findings."""
    description = scratch / "openapi.json"
    description.write_text(json.dumps(_tried()))
    config = scratch / "schemathesis.toml"
    config.write_text(_config(key))
    excluded = [word for name in EXCLUDED for word in ("--exclude-operation-id", name)]
    finished = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(config)),
            *("run", str(description), "--url", url, "--continue-on-failure", "--no-color"),
            *excluded,
            *options,
        ],
        cwd=scratch,
        env=os.environ | {"SCHEMATHESIS_HOOKS": str(HOOKS)},
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    return None if finished.returncode == 0 else finished.stdout + finished.stderr


def _tried() -> dict[str, Any]:
    """Skip tickets: the tool reuses valid ones from responses and takes them for invented ones."""
    description = snapshot.read()
    del description["components"]["securitySchemes"]["ticket"]
    for item in description["paths"].values():
        for operation in item.values():
            operation["security"] = [one for one in operation["security"] if "ticket" not in one]
    return description


def _config(key: str) -> str:
    checks = "".join(
        f"[checks.{name}]\nenabled = {str(enabled).lower()}\n" for name, enabled in CHECKS.items()
    )
    return (
        "warnings = false\n"
        "request-timeout = 90\n"
        "[parameters]\nwait = 1\n"
        f'[auth.openapi.bearer]\nbearer = "{key}"\n'
        f'[auth.openapi.api_key]\napi_key = "{key}"\n{checks}'
        # A too long request line is rejected before it is validated.
        '[checks.negative_data_rejection]\nexpected-statuses = ["4xx", "5xx"]\n'
    )
