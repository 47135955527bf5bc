"""Request and response bodies of the nine verbs, the flat API."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AliasChoices, ConfigDict, Field

from sandbox_client.models.files import PATH_FORMS
from sandbox_client.models.ports import LINK_LIFETIME_S, LinkLifetime
from sandbox_client.models.sandboxes import Capabilities, SandboxState, Urls
from sandbox_client.models.wire import (
    Name,
    Port,
    RequestModel,
    ResponseModel,
    Seconds,
    Storable,
    Text,
)

_LONGEST_COMMAND = 128 * 1024  # of one argument, in Linux

_TEMPLATE = Field(validation_alias=AliasChoices("template_id", "sandbox_template_id"))
_TIMEOUT = Field(validation_alias=AliasChoices("timeout", "timeout_seconds"))
_PATH = Field(validation_alias=AliasChoices("path", "file_path"))

Path = Annotated[
    Storable,
    Field(min_length=1, max_length=4096, description=f"Path in the sandbox: {PATH_FORMS}."),
    _PATH,
]


class Verb(RequestModel):
    model_config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)


class CreateVerb(Verb):
    user_id: Name | None = None
    template_id: Annotated[Name | None, _TEMPLATE] = None
    capabilities: Capabilities = Field(default_factory=list)
    timeout: Annotated[Seconds | None, _TIMEOUT] = None


class SandboxVerb(Verb):
    sandbox_id: Name


class TimeoutVerb(SandboxVerb):
    timeout: Annotated[
        Seconds, _TIMEOUT, Field(description="Seconds from now until the sandbox is deleted.")
    ]


class ExposePortVerb(SandboxVerb):
    port: Port
    ttl_s: LinkLifetime = LINK_LIFETIME_S


class RunCommandVerb(SandboxVerb):
    command: Annotated[Storable, Field(min_length=1, max_length=_LONGEST_COMMAND)]
    background: Annotated[
        bool, Field(strict=True, description="Return as soon as the command has started.")
    ] = False
    timeout: Annotated[
        Seconds,
        _TIMEOUT,
        Field(description="Kill a foreground command after this many seconds."),
    ] = 60


class Encoding(StrEnum):
    """Encoding of file contents; use base64 for binary files."""

    UTF_8 = "utf-8"
    BASE64 = "base64"


class ReadFileVerb(SandboxVerb):
    path: Path


class WriteFileVerb(ReadFileVerb):
    content: Text
    encoding: Encoding = Encoding.UTF_8


class VerbSandbox(ResponseModel):
    sandbox_id: str
    status: SandboxState
    status_reason: str | None
    urls: Urls | None


class ExposedPort(ResponseModel):
    sandbox_id: str
    port: int
    url: Annotated[
        str,
        Field(
            description="Link to the port for HTTP and WebSockets that needs no API key: anyone who has it can use "
            "the port. Programs may also use its host with an API key in a header."
        ),
    ]
    expires_at: Annotated[
        datetime,
        Field(
            description="When the link expires. Revoking the key that created it ends it earlier."
        ),
    ]


class CommandResult(ResponseModel):
    """The interleaved stdout and stderr of a command, and its exit code."""

    output: str
    exit_code: Annotated[int, Field(description="null for background commands.")] | None
    truncated: Annotated[bool, Field(description="Whether the start of the output was omitted.")]


class FileContent(ResponseModel):
    path: str
    content: str
    encoding: Encoding


class WrittenFile(ResponseModel):
    path: str
    size: int
