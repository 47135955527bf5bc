"""schemathesis, run against a server by the snapshot of its description."""

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
    "not_a_server_error": False,  # the hooks' own says which of them are
    "positive_data_acceptance": False,  # what a schema cannot say, as that there is such a backend
    "use_after_free": False,  # what has ended is still told of, for as long as it is kept
}


def run_schemathesis(url: str, key: str, scratch: Path, *options: str) -> str | None:
    """Try the operations with valid and invalid data; gives what was found, if anything was."""
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
    """Leave tickets out: the tool finds good ones in answers, and takes them for some that it made up."""
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
        # A request line may be too long to be read for what is wrong with it.
        '[checks.negative_data_rejection]\nexpected-statuses = ["4xx", "5xx"]\n'
    )
