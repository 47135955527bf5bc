from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from sandbox_client.models.repositories import FullName
from sandbox_client.models.wire import RequestModel, ResponseModel, Storable

ForgeName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
_Url = Annotated[Storable, Field(pattern=r"^https?://", max_length=500)]
_Secret = Annotated[Storable, Field(min_length=1, max_length=16_000)]
_Word = Annotated[str, Field(pattern=r"^[^\s:@/]+$", max_length=200)]


class ForgeKind(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"
    FORGEJO = "forgejo"
    GIT = "git"


class ForgeAuth(StrEnum):
    APP = "app"
    TOKEN = "token"  # noqa: S105 - the name of a method
    NONE = "none"


class ForgeWrite(RequestModel):
    """A forge and its credential: `token`, or `app_id` with `private_key`. Secrets are stored encrypted and never returned."""

    kind: ForgeKind
    auth: ForgeAuth | None = Field(
        None, description="Default: `app` with an `app_id`, else `token`."
    )
    api_url: _Url | None = Field(
        None,
        description="URL of the API, for example `https://gitlab.example.org/api/v4`. Default: the public service.",
    )
    git_url: _Url | None = Field(
        None,
        description="URL below which the repositories are. Default: the public service. Required for `git`.",
    )
    token: _Secret | None = Field(
        None,
        repr=False,
        description="Access token, or the password of a git server. Omit it to keep the stored one.",
    )
    app_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,64}$")] | None = Field(
        None, description="Id or client id of a GitHub App."
    )
    private_key: _Secret | None = Field(
        None,
        repr=False,
        description="Private key of the App, in PEM. Omit it to keep the stored one.",
    )
    webhook_secret: _Secret | None = Field(
        None,
        repr=False,
        description="Secret that webhook deliveries are signed with. Omit it to keep the stored one.",
    )
    git_only: bool = Field(
        default=False,
        description=(
            "The token is for git only, such as a deploy token: pull requests are opened by push options, "
            "where the forge has them, and not followed."
        ),
    )
    git_username: _Word | None = Field(
        None, description="User name for git, where the forge wants a certain one."
    )

    @model_validator(mode="after")
    def _require_one_secret(self) -> "ForgeWrite":
        if self.token is not None and self.private_key is not None:
            raise ValueError("Give either `token`, or `app_id` with `private_key`.")
        return self


class ForgeRead(ResponseModel):
    """A forge; its secrets are not returned."""

    id: str
    name: str
    kind: ForgeKind
    auth: ForgeAuth
    api_url: str | None
    git_url: str
    app_id: str | None
    git_username: str | None
    bot_login: str | None = Field(
        description="The account that the server writes as; known after the first check."
    )
    has_webhook_secret: bool
    webhook_url: str = Field(description="The address to configure for webhooks at the forge.")
    created_at: datetime


class ForgeCheck(RequestModel):
    repository: FullName | None = Field(
        None,
        description=(
            "A repository to try the permissions on. Without it, the permissions of a token cannot be checked."
        ),
    )


class ForgeInstallationRead(ResponseModel):
    """An installation of a GitHub App."""

    id: str
    account: str
    all_repositories: bool
    suspended: bool
    permissions: dict[str, str]


class MissingPermissionRead(ResponseModel):
    name: str
    access: str
    needed_for: str
    is_required: bool
    account: str | None = Field(description="The account whose installation lacks it.")


class ForgeLimitRead(ResponseModel):
    """A request quota, as the forge last reported it."""

    account: str
    resource: str
    limit: int | None
    remaining: int | None
    reset_at: datetime | None
    paused_until: datetime | None
    paused_reason: str | None


class ForgeCheckRead(ResponseModel):
    """The kind of a credential and its missing permissions."""

    is_ready: bool = Field(description="No required permission is missing, as far as was checked.")
    login: str | None
    token_expires_at: datetime | None
    installations: list[ForgeInstallationRead]
    missing_permissions: list[MissingPermissionRead]
    limits: list[ForgeLimitRead]
    webhook_url: str


class DeliveryReceipt(ResponseModel):
    """The answer to a forge that delivered a webhook."""

    id: str
    is_new: Annotated[
        bool, Field(description="false: it was received before, and nothing is done again.")
    ]


class DeliveryRead(ResponseModel):
    """A webhook delivery and what came of it."""

    id: str
    forge: Annotated[str, Field(description="Name of the forge.")]
    delivery_id: Annotated[str, Field(description="Id that the forge gave it.")]
    kind: Annotated[str, Field(description="`issue`, `comment`, `pull`, `review`, `check`, …")]
    action: str
    subject: (
        Annotated[
            str, Field(description="Number of the issue or pull request, commit, or pushed ref.")
        ]
        | None
    )
    actor: Annotated[str, Field(description="Login of the user who caused it.")] | None
    received_at: datetime
    done_at: Annotated[datetime, Field(description="null: not processed yet.")] | None
    outcome: (
        Annotated[str, Field(description="What was done, or the reason why nothing was.")] | None
    )
    last_error: (
        Annotated[str, Field(description="Error of the last attempt, while attempts are repeated.")]
        | None
    )
