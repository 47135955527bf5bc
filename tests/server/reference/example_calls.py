"""Runs the documented examples as they are shown: with curl, in a shell."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from reference.examples import Example

STAND_INS = Path(__file__).parent / "stand_ins"
TIME_IS_UP = 28  # curl's exit code after --max-time, expected for streams


class Shell:
    """A working directory and variables."""

    def __init__(
        self, directory: Path, variables: Mapping[str, str], *, server: str, key: str
    ) -> None:
        self._directory = directory
        known = {"SERVER": server, "KEY": key, "STAND_INS": str(STAND_INS)}
        self._variables = {**known, **variables}
        # curl reads its options from there, so the example itself is unchanged.
        options = 'silent\nshow-error\nno-buffer\nmax-time = 60\ndump-header = "headers"\n'
        (directory / ".curlrc").write_text(options)

    def call(self, example: Example) -> str:
        """Run an example; returns the response, which must have the documented status."""
        done = self._run(f"{{ {example.before or ':'}\n}} >/dev/null || exit\n{example.curl}")
        assert done.returncode in {0, TIME_IS_UP}, (example.operation, done)
        status = self._status()
        assert status == example.status, (example.operation, status, done)
        for variable, field in example.keep.items():
            self._variables[variable] = json.loads(done.stdout)[field]
        return done.stdout

    def _run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script],
            cwd=self._directory,
            env=os.environ | self._variables | {"CURL_HOME": str(self._directory)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )

    def _status(self) -> int:
        heads = (self._directory / "headers").read_text().splitlines()
        return int([line for line in heads if line.startswith("HTTP/")][-1].split()[1])
