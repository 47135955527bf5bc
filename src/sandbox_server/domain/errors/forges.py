from datetime import timedelta
from typing import ClassVar

from sandbox_server.domain.errors.access import AccessDenied
from sandbox_server.domain.errors.kinds import Conflict, InvalidRequest, NotFound, SandboxError
from sandbox_server.domain.errors.storable_text import storable

_LONGEST_REASON = 600


class ForgeNotFound(NotFound):
    code = "forge-not-found"
    noun = "forge"
    remediation = "List the forges with GET /v1/forges, or add one with PUT /v1/forges/{name}."


class ForgeInUse(Conflict):
    code = "forge-in-use"
    remediation = "Delete its repositories first."

    def __init__(self, name: str) -> None:
        super().__init__(f"The forge {name!r} has repositories.")


class ForgeHostNotAllowed(InvalidRequest):
    """The server sends requests only to forges that its operator allows."""

    code = "forge-host-not-allowed"
    remediation = (
        "Use a forge that this server allows, or have its operator add the host to --forge-hosts."
    )

    def __init__(self, url: str) -> None:
        super().__init__(f"This server may not send requests to {url!r}.")


class SignatureRefused(AccessDenied):
    """A webhook delivery is not signed with the forge's webhook secret."""

    code = "signature-refused"
    remediation = "Configure the webhook at the forge with the secret that was given to PUT /v1/forges/{name}."


class ForgeError(SandboxError):
    """A request to a forge failed."""

    code = "forge-error"
    is_repeatable: ClassVar[bool] = False
    """Whether the same request may succeed later without anybody changing anything."""

    def __init__(self, forge: str, reason: str, *, retry_after: timedelta | None = None) -> None:
        self.forge = forge
        self.reason = storable(reason)[:_LONGEST_REASON]
        self.retry_after = retry_after
        super().__init__(f"Forge {forge!r}: {self.reason}")


class ForgeUnavailable(ForgeError):
    """No answer, an unreadable one, or a failure of the forge itself."""

    code = "forge-unavailable"
    remediation = "Try again later."
    is_repeatable = True


class ForgeLimited(ForgeError):
    """A rate limit of the forge, or our own for writes."""

    code = "forge-limited"
    remediation = "Wait: Retry-After says how long. More requests extend the limit."
    is_repeatable = True


class ForgeCredentialRefused(ForgeError):
    code = "forge-credential-refused"
    remediation = "Replace the credential with PUT /v1/forges/{name}: it was revoked, has expired, or is wrong."


class ForgePermissionMissing(ForgeError):
    """`permission` names what the credential lacks, as far as the forge says so."""

    code = "forge-permission-missing"
    remediation = (
        "Grant the permission to the token or the App at the forge, or use another credential."
    )

    def __init__(self, forge: str, reason: str, *, permission: str | None = None) -> None:
        named = "" if permission is None else f" The request needs the permission {permission}."
        super().__init__(forge, f"{reason}{named}")
        self.permission = permission


class ForgeResourceNotFound(ForgeError):
    """The forge does not have it, or hides it from this credential; the answer does not tell which."""

    code = "forge-resource-not-found"
    remediation = "Check the name, and that the token or the App has access to the repository."


class ForgeRefused(ForgeError):
    """The forge rejects the request as it is."""

    code = "forge-refused"
    remediation = "Read the forge's message and change the request."


class PullExists(ForgeRefused):
    """The branch has an open pull request already."""

    code = "pull-request-exists"
    remediation = "Use the pull request that exists."


class NotSupportedByForge(ForgeError):
    """This kind of forge, or this credential, cannot do it."""

    code = "not-supported-by-forge"
    remediation = "Use a forge with an API, and a token for it."
