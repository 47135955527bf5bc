"""What `templates/e2b.toml` says, and the Dockerfile as the SDK reads it."""

import re
import tomllib
from typing import Any

from e2b import Template
from e2b.template.main import TemplateFinal

from tests.engine.engine_process import REPOSITORY

TEMPLATES = REPOSITORY / "templates"
SANDBOX_FILES = REPOSITORY / "docker/sandbox"


def described() -> dict[str, Any]:
    """Read the description of the templates."""
    return tomllib.loads((TEMPLATES / "e2b.toml").read_text())


def dockerfile(args: dict[str, str]) -> str:
    """Read the Dockerfile, with values for its build arguments."""
    text = (TEMPLATES / str(described()["dockerfile"])).read_text()
    for name, value in args.items():
        text, found = re.subn(rf"(?m)^ARG {name}=.*$", f"ARG {name}={value}", text)
        assert found == 1, f"{name} is no argument of the Dockerfile"
    return text


def template(name: str) -> TemplateFinal:
    """Make what the SDK builds this template of."""
    description = described()
    text = dockerfile(description["templates"][name]["args"])
    builder = Template(file_context_path=REPOSITORY).from_dockerfile(text)
    return builder.set_start_cmd(description["start_cmd"], description["ready_cmd"])
