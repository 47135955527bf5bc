"""`e2b-sandbox.config.json`: how a project configures its sandbox."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sandbox_client.models import Envs, Labels, Name, Seconds
from sandbox_client.models.sandboxes import McpServers
from sandbox_client.models.wire import EnvName

FILE = "e2b-sandbox.config.json"
AGENT_KEYS = (
    *("GITHUB_TOKEN", "COPILOT_GITHUB_TOKEN"),
    *("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("OPENAI_API_KEY", "CODEX_API_KEY"),
    *("GEMINI_API_KEY", "GOOGLE_API_KEY"),
)
"""Variables that coding agents authenticate with. Without a file, those that are set locally are passed."""
_DAY_S = 24 * 3600


class InvalidConfig(Exception):
    """The configuration file is invalid; the text says where and why."""


class WorkspaceConfig(BaseModel):
    """The contents of the configuration file; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")

    template: Name | None = None
    metadata: Labels = Field(default_factory=dict)
    environment: Annotated[
        dict[EnvName, str | None],
        Field(description="Environment variables; null takes the local value."),
    ] = Field(default_factory=dict)
    setup: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(description="Commands run once, in order, in /workspace of a new sandbox."),
    ] = Field(default_factory=list)
    mcp_servers: McpServers = Field(default_factory=dict)
    exclude: Annotated[list[str], Field(description="Additional .gitignore patterns.")] = Field(
        default_factory=list
    )
    timeout_s: Seconds = _DAY_S
    idle_timeout_s: Seconds | None = None

    @field_validator("environment", mode="before")
    @classmethod
    def _read_list(cls, value: object) -> object:
        """Also accept a list of `NAME` or `NAME=value`."""
        if not isinstance(value, list):
            return value
        pairs = [str(entry).partition("=") for entry in value]
        return {name: value if equals else None for name, equals, value in pairs}

    @classmethod
    def read(cls, directory: Path) -> "WorkspaceConfig":
        """Read a directory's file; without one, pass the keys of agents that are set locally."""
        file = directory / FILE
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return cls(environment={name: None for name in AGENT_KEYS if os.environ.get(name)})
        except ValidationError as error:
            raise InvalidConfig(f"{file}:\n{_describe(error)}") from None

    def variables(self, environment: Mapping[str, str] = os.environ) -> tuple[Envs, list[str]]:
        """Return the values of the variables, and the names of those that are not set locally."""
        values = {
            name: environment.get(name) if value is None else value
            for name, value in self.environment.items()
        }
        found = {name: value for name, value in values.items() if value is not None}
        return found, [name for name, value in values.items() if value is None]


def _describe(error: ValidationError) -> str:
    return "\n".join(
        f"  {'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    )
