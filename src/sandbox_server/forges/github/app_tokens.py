"""Authentication at GitHub: a token as it is, or tokens that an App mints per repository with least permissions."""

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from sandbox_server.domain.errors import (
    ForgePermissionMissing,
    ForgeResourceNotFound,
    InvalidRequest,
)
from sandbox_server.domain.tasks.forges import GitAccess, RepositoryFacts
from sandbox_server.forges.connection.answers import Answer
from sandbox_server.forges.connection.client import Authorized, Call, ForgeAddress, ForgeClient
from sandbox_server.forges.connection.token_store import MintedToken, TokenStore
from sandbox_server.forges.github.models import InstallationDocument, MintedDocument
from sandbox_server.forges.github.permissions import API, PERMISSIONS_OF, is_granted

ACCEPT = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_CLOCKS_DIFFER = timedelta(minutes=1)
_JWT_LIVES = timedelta(minutes=8)  # GitHub allows ten
_SMALLEST_KEY = 2048


class GithubCredentials(Protocol):
    async def authorize(self, repository: RepositoryFacts) -> Authorized: ...

    async def renew(self, repository: RepositoryFacts) -> bool:
        """Forget the token that was refused; False where there can be no other."""
        ...

    async def find_installation(self, full_name: str) -> InstallationDocument | None: ...

    async def authorize_name(self, full_name: str) -> Authorized:
        """Authenticate a request for a repository whose id is not known yet."""
        ...

    async def authorize_for(self, repository: RepositoryFacts, purpose: str) -> Authorized:
        """Authenticate a request that needs more than most do, such as write access to contents."""
        ...

    async def git_token(self, repository: RepositoryFacts, access: GitAccess) -> MintedToken: ...

    async def forget_git_token(self, repository: RepositoryFacts, access: GitAccess) -> None: ...


class StaticToken:
    """A fine-grained or classic personal access token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def authorize(self, _repository: RepositoryFacts) -> Authorized:
        return self.authorized

    async def authorize_name(self, _full_name: str) -> Authorized:
        return self.authorized

    @property
    def authorized(self) -> Authorized:
        return Authorized(headers=_bearer(self._token), account="token")

    async def renew(self, _repository: RepositoryFacts) -> bool:
        return False

    async def find_installation(self, _full_name: str) -> InstallationDocument | None:
        return None

    async def authorize_for(self, _repository: RepositoryFacts, _purpose: str) -> Authorized:
        return self.authorized

    async def git_token(self, _repository: RepositoryFacts, _access: GitAccess) -> MintedToken:
        return MintedToken(value=self._token, expires_at=None)

    async def forget_git_token(self, _repository: RepositoryFacts, _access: GitAccess) -> None:
        """There is no other token to take."""


class AppTokens:
    """Mints installation tokens for one repository and one purpose each."""

    def __init__(
        self,
        client: ForgeClient,
        address: ForgeAddress,
        store: TokenStore,
        *,
        app_id: str,
        private_key: RSAPrivateKey,
    ) -> None:
        self._client = client
        self._address = address
        self._store = store
        self._app_id = app_id
        self._key = private_key

    async def authorize(self, repository: RepositoryFacts) -> Authorized:
        installation = await self._installation_id(repository)
        token = await self._token(repository, API)
        return Authorized(headers=_bearer(token.value), account=installation)

    async def authorize_name(self, full_name: str) -> Authorized:
        installation = await self.get_installation(full_name)
        name = full_name.rpartition("/")[2]
        token = await self._mint(
            installation, {"repositories": [name], "permissions": {"metadata": "read"}}
        )
        return Authorized(headers=_bearer(token.value), account=str(installation.id))

    async def authorize_for(self, repository: RepositoryFacts, purpose: str) -> Authorized:
        installation = await self.get_installation(repository.full_name)
        token = await self._mint_for(installation, repository, purpose)
        return Authorized(headers=_bearer(token.value), account=str(installation.id))

    async def renew(self, repository: RepositoryFacts) -> bool:
        await self._forget(repository, API)
        return True

    async def git_token(self, repository: RepositoryFacts, access: GitAccess) -> MintedToken:
        return await self._token(repository, access)

    async def forget_git_token(self, repository: RepositoryFacts, access: GitAccess) -> None:
        await self._forget(repository, access)

    async def get_installation(self, full_name: str) -> InstallationDocument:
        try:
            answer = await self.ask("GET", f"/repos/{full_name}/installation", about=full_name)
        except ForgeResourceNotFound:
            raise ForgeResourceNotFound(
                self._address.name,
                f"The App {self._app_id} is not installed on {full_name}, or the repository does not exist.",
            ) from None
        return answer.read(InstallationDocument)

    async def find_installation(self, full_name: str) -> InstallationDocument | None:
        return await self.get_installation(full_name)

    async def ask(
        self, method: str, path: str, *, about: str, json: Mapping[str, Any] | None = None
    ) -> Answer:
        """Send a request as the App itself, authenticated by a JWT."""
        token = make_jwt(self._app_id, self._key, now=await self._store.now())
        call = Call(
            method=method,
            path=path,
            about=about,
            account="app",
            resource="mint",
            headers=_bearer(token),
            json=json,
        )
        return (await self._client.send(self._address, call)).require_success(about=about)

    async def mint_for_installation(self, installation: InstallationDocument) -> MintedToken:
        """Mint a token that can only look up public facts."""
        return await self._mint(installation, {"permissions": {"metadata": "read"}})

    async def _token(self, repository: RepositoryFacts, access: str) -> MintedToken:
        key = (self._address.forge_id, repository.external_id, access)
        known = await self._store.find(*key)
        if known is not None:
            return known
        installation = await self.get_installation(repository.full_name)
        minted = await self._mint_for(installation, repository, access)
        await self._store.put(*key, minted)
        return minted

    async def _mint_for(
        self, installation: InstallationDocument, repository: RepositoryFacts, access: str
    ) -> MintedToken:
        return await self._mint(
            installation,
            {
                "repository_ids": [int(repository.external_id)],
                "permissions": self._permissions(installation, access),
            },
        )

    async def _mint(
        self, installation: InstallationDocument, wanted: Mapping[str, Any]
    ) -> MintedToken:
        answer = await self.ask(
            "POST",
            f"/app/installations/{installation.id}/access_tokens",
            about="Minting a token",
            json=wanted,
        )
        document = answer.read(MintedDocument)
        return MintedToken(value=document.token, expires_at=document.expires_at)

    def _permissions(self, installation: InstallationDocument, access: str) -> dict[str, str]:
        """Select the permissions of a purpose; those that tasks can do without are left out if not granted."""
        wanted = {}
        for needed in PERMISSIONS_OF[access]:
            if is_granted(installation.permissions, needed):
                wanted[needed.name] = needed.access
            elif needed.is_required:
                raise ForgePermissionMissing(
                    self._address.name,
                    f"The App's installation {installation.id} lacks it, to {needed.needed_for}.",
                    permission=f"{needed.name}: {needed.access}",
                )
        return wanted

    async def _installation_id(self, repository: RepositoryFacts) -> str:
        if repository.installation_id is not None:
            return repository.installation_id
        return str((await self.get_installation(repository.full_name)).id)

    async def _forget(self, repository: RepositoryFacts, access: str) -> None:
        await self._store.remove(self._address.forge_id, repository.external_id, access)


def read_private_key(pem: bytes, *, is_verified: bool = False) -> RSAPrivateKey:
    """Read the private key of an App, as GitHub gives it.

    Verifying takes 26 ms, so it is left out for keys that were verified when they were stored.
    """
    try:
        key = serialization.load_pem_private_key(
            pem, password=None, unsafe_skip_rsa_key_validation=is_verified
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidRequest(
            "The private key cannot be read. Give the PEM file that GitHub generated for the App."
        ) from None
    if not isinstance(key, RSAPrivateKey) or key.key_size < _SMALLEST_KEY:
        raise InvalidRequest(
            "The private key is not an RSA key of 2048 bits or more, as Apps have."
        )
    return key


def make_jwt(app_id: str, key: RSAPrivateKey, *, now: datetime) -> str:
    """Sign a token by which the App authenticates itself."""
    claims = {
        "iat": int((now - _CLOCKS_DIFFER).timestamp()),
        "exp": int((now + _JWT_LIVES).timestamp()),
        "iss": app_id,
    }
    signed = f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part(claims)}"
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_base64(signature)}"


def _part(document: Mapping[str, object]) -> str:
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bearer(token: str) -> dict[str, str]:
    return {**ACCEPT, "Authorization": f"Bearer {token}"}
