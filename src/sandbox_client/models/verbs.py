"""Bodies of the nine verbs: each is a call of its own, as callers of other servers of this kind know them."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AliasChoices, ConfigDict, Field

from sandbox_client.models.files import PATH_FORMS
from sandbox_client.models.ports import LINK_LIFETIME_S, LinkLifetime
from sandbox_client.models.sandboxes import SandboxState, Urls
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
    timeout: Annotated[Seconds | None, _TIMEOUT] = None


class SandboxVerb(Verb):
    sandbox_id: Name


class TimeoutVerb(SandboxVerb):
    timeout: Annotated[Seconds, _TIMEOUT, Field(description="From now until it is deleted.")]


class ExposePortVerb(SandboxVerb):
    port: Port
    ttl_s: LinkLifetime = LINK_LIFETIME_S


class RunCommandVerb(SandboxVerb):
    command: Annotated[Storable, Field(min_length=1, max_length=_LONGEST_COMMAND)]
    background: Annotated[
        bool, Field(strict=True, description="Answer when it has started; it runs on.")
    ] = False
    timeout: Annotated[
        Seconds,
        _TIMEOUT,
        Field(description="When a command that is waited for is killed."),
    ] = 60


class Encoding(StrEnum):
    """How bytes are written as text; base64 is for those that are none."""

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
            description="A link that opens the port without a key, for HTTP and WebSockets. Whoever has it "
            "reaches the port; programs may also use its host with a key in a header."
        ),
    ]
    expires_at: Annotated[
        datetime,
        Field(description="When the link ends, if the key that made it is not revoked before."),
    ]


class CommandResult(ResponseModel):
    """What a command wrote to both of its outputs, as it came, and how it ended."""

    output: str
    exit_code: Annotated[int, Field(description="null: it runs in the background.")] | None
    truncated: Annotated[bool, Field(description="Whether the output's beginning is left out.")]


class FileContent(ResponseModel):
    path: str
    content: str
    encoding: Encoding


class WrittenFile(ResponseModel):
    path: str
    size: int
