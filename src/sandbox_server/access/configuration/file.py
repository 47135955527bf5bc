"""The file with the configurations of tenants: that of the tenant `default` at the top level, others below `tenants.NAME`."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from sandbox_client.models import Configuration, TenantName
from sandbox_server.access.configuration.service import require_backends
from sandbox_server.access.tenants import DEFAULT_TENANT
from sandbox_server.domain.errors import InvalidRequest


class UnusableConfiguration(Exception):
    """The configuration file cannot be read or is invalid."""


class _File(Configuration):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tenants: dict[TenantName, Configuration] = Field(default_factory=dict)


def read_configurations(path: Path | None) -> Mapping[str, Configuration]:
    """Read the configurations by name of the tenant; an error names the file and the key."""
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise UnusableConfiguration(f"{path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnusableConfiguration(f"{path} is not valid TOML: {error}.") from None
    try:
        file = _File.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(map(_describe, error.errors()))
        raise UnusableConfiguration(f"{path} is invalid: {problems}.") from None
    configurations = dict(file.tenants)
    if document.keys() - {"tenants"}:
        if DEFAULT_TENANT in configurations:
            raise UnusableConfiguration(
                f"{path} is invalid: tenants.{DEFAULT_TENANT}: The tenant {DEFAULT_TENANT!r} is configured at the top level."
            )
        configurations[DEFAULT_TENANT] = Configuration.model_validate(
            {name: value for name, value in document.items() if name != "tenants"}
        )
    return configurations


def require_known_backends(
    configurations: Mapping[str, Configuration], backends: Sequence[str]
) -> Mapping[str, Configuration]:
    """Refuse configurations with names of unknown backends."""
    for tenant, configuration in configurations.items():
        try:
            require_backends(configuration, backends)
        except InvalidRequest as error:
            raise UnusableConfiguration(
                f"The configuration of the tenant {tenant!r} is invalid: {error}"
            ) from None
    return configurations


def _describe(problem: Any) -> str:
    key = ".".join(str(step) for step in problem["loc"] if step != "[key]")
    text = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        text = "Unknown key"
    return f"{key}: {text.rstrip('.')}"
