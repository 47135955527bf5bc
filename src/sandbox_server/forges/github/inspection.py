"""The kind of a credential at GitHub, and its missing permissions."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from sandbox_server.domain.errors import (
    ForgeError,
    ForgePermissionMissing,
    ForgeRefused,
    ForgeResourceNotFound,
)
from sandbox_server.domain.tasks.forges import (
    CredentialFacts,
    Installation,
    MissingPermission,
    RepositoryFacts,
)
from sandbox_server.forges.connection.answers import Answer
from sandbox_server.forges.connection.client import Authorized, Call
from sandbox_server.forges.github.app_tokens import ACCEPT, AppTokens, StaticToken
from sandbox_server.forges.github.models import AppDocument, InstallationDocument, User
from sandbox_server.forges.github.permissions import (
    ACTIONS,
    CHECKS,
    ISSUES,
    PULLS,
    PUSH,
    STATUSES,
    NeededPermission,
    find_missing,
)
from sandbox_server.forges.github.rest import GithubApi

FindRepository = Callable[[str], Awaitable[RepositoryFacts]]

_EXPIRES = "github-authentication-token-expiration"
# An invalid document: GitHub judges the permission first, so 422 means that it is there, and nothing is created.
_WRITES = ((PUSH, "/git/refs"), (PULLS, "/pulls"), (ISSUES, "/issues"))
_LACKING = (ForgePermissionMissing, ForgeResourceNotFound)


async def inspect_token(
    api: GithubApi, token: StaticToken, repository: RepositoryFacts | None
) -> CredentialFacts:
    """Find out whose token it is; its permissions can be tried on a repository only."""
    answer = await api.send(token.authorized, Call(method="GET", path="/user", about="The token"))
    user = answer.read(User)
    missing = [] if repository is None else await _try_permissions(api, repository)
    return CredentialFacts(
        login=user.login,
        user_id=str(user.id),
        missing=missing,
        expires_at=_read_expiry(answer),
    )


async def inspect_app(
    api: GithubApi, app: AppTokens, repository: RepositoryFacts | None
) -> CredentialFacts:
    """List the installations of an App with what each lacks."""
    document = (await app.ask("GET", "/app", about="The App")).read(AppDocument)
    answer = await app.ask("GET", "/app/installations?per_page=100", about="Installations")
    found = answer.read(list[InstallationDocument])
    concerned = [
        each for each in found if repository is None or str(each.id) == repository.installation_id
    ]
    login = f"{document.slug}[bot]"
    return CredentialFacts(
        login=login,
        user_id=await _find_bot_id(api, app, found, login),
        installations=[_installation(each) for each in found],
        missing=[lack for each in concerned for lack in _missing_of(each)],
    )


async def _try_permissions(
    api: GithubApi, repository: RepositoryFacts
) -> Sequence[MissingPermission]:
    missing = []
    for needed, method, path in _attempts(repository):
        if not await _may(api, repository, method, path):
            missing.append(needed.missing())
    return missing


def _attempts(repository: RepositoryFacts) -> Sequence[tuple[NeededPermission, str, str]]:
    commit = f"/commits/{repository.default_branch}"
    return (
        *((needed, "POST", path) for needed, path in _WRITES),
        (CHECKS, "GET", f"{commit}/check-runs?per_page=1"),
        (STATUSES, "GET", f"{commit}/status?per_page=1"),
        (ACTIONS, "GET", "/actions/runs?per_page=1"),
    )


async def _may(api: GithubApi, repository: RepositoryFacts, method: str, path: str) -> bool:
    try:
        if method == "POST":
            await api.write(repository, method, path, {}, about="Permission")
        else:
            await api.get(repository, path, about="Permission")
    except _LACKING:
        return False
    except ForgeRefused:
        return True
    return True


def _missing_of(document: InstallationDocument) -> Sequence[MissingPermission]:
    return find_missing(document.permissions, account=_account_of(document))


def _installation(document: InstallationDocument) -> Installation:
    return Installation(
        id=str(document.id),
        account=_account_of(document),
        all_repositories=document.repository_selection == "all",
        permissions=document.permissions,
        suspended=document.suspended_at is not None,
    )


def _account_of(document: InstallationDocument) -> str:
    return "" if document.account is None else document.account.login or document.account.slug


async def _find_bot_id(
    api: GithubApi, app: AppTokens, installations: Sequence[InstallationDocument], login: str
) -> str | None:
    """Find the id of the App's user, which e-mail addresses of its commits contain."""
    active = [each for each in installations if each.suspended_at is None]
    if not active:
        return None
    try:
        token = await app.mint_for_installation(active[0])
        headers = {**ACCEPT, "Authorization": f"Bearer {token.value}"}
        authorized = Authorized(headers=headers, account=str(active[0].id))
        call = Call(method="GET", path=f"/users/{login}", about=f"The user {login}")
        return str((await api.send(authorized, call)).read(User).id)
    except ForgeError:
        return None


def _read_expiry(answer: Answer) -> datetime | None:
    text = answer.headers.get(_EXPIRES, "")
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC)
    except ValueError:
        return None
