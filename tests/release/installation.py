"""What users have who install the wheel."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_READ_BY_ALL = Path("/usr/bin/python3")


@dataclass(frozen=True)
class Installation:
    directory: Path

    def program(self, name: str) -> Path:
        return self.directory / "bin" / name

    def ask(self, name: str, *words: str) -> str:
        """Run one of its programs with nothing of this checkout in reach."""
        done = subprocess.run(
            [self.program(name), *words],
            cwd=self.directory,
            env={"PATH": os.environ["PATH"]},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout


def readable_python() -> Path:
    """Choose a Python that ordinary accounts may run too, as one below /root is not."""
    can = [
        str(_READ_BY_ALL),
        "-c",
        "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))",
    ]
    able = _READ_BY_ALL.exists() and subprocess.run(can, check=False).returncode == 0
    return _READ_BY_ALL if able else Path(sys.executable)
