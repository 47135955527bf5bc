"""`e2b-sandbox.config.json`: what a project wants of the sandbox that it is worked on in."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sandbox_client.models import Envs, Labels, Name, Seconds
from sandbox_client.models.sandboxes import McpServers
from sandbox_client.models.wire import EnvName

FILE = "e2b-sandbox.config.json"
_DAY_S = 24 * 3600


class InvalidConfig(Exception):
    """The project's file cannot be used; the text says where and why."""


class WorkspaceConfig(BaseModel):
    """What a project's file says; a field that does not exist is refused, since it was meant to do something."""

    model_config = ConfigDict(extra="forbid")

    template: Name | None = None
    metadata: Labels = Field(default_factory=dict)
    environment: Annotated[
        dict[EnvName, str | None],
        Field(description="Values, or null for what the variable is where the sandbox is started."),
    ] = Field(default_factory=dict)
    setup: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(description="Command lines, run in /workspace of a new sandbox, in this order."),
    ] = Field(default_factory=list)
    mcp_servers: McpServers = Field(default_factory=dict)
    exclude: Annotated[
        list[str], Field(description="Patterns as in .gitignore, after those that are there.")
    ] = Field(default_factory=list)
    timeout_s: Seconds = _DAY_S
    idle_timeout_s: Seconds | None = None

    @field_validator("environment", mode="before")
    @classmethod
    def _read_list(cls, given: object) -> object:
        """Take a list too, as of containers: `NAME`, or `NAME=value`."""
        if not isinstance(given, list):
            return given
        pairs = [str(one).partition("=") for one in given]
        return {name: value if equals else None for name, equals, value in pairs}

    @classmethod
    def read(cls, directory: Path) -> "WorkspaceConfig":
        """Read a directory's file; without one everything is as usual."""
        file = directory / FILE
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return cls()
        except ValidationError as error:
            raise InvalidConfig(f"{file}:\n{_describe(error)}") from None

    def variables(self, environment: Mapping[str, str] = os.environ) -> tuple[Envs, list[str]]:
        """Give the values of its variables, and the names of those that have none here."""
        values = {
            name: environment.get(name) if value is None else value
            for name, value in self.environment.items()
        }
        given = {name: value for name, value in values.items() if value is not None}
        return given, [name for name, value in values.items() if value is None]


def _describe(error: ValidationError) -> str:
    return "\n".join(
        f"  {'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg'].removeprefix('Value error, ')}"
        for one in error.errors()
    )
