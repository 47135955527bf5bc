"""Lookup of sandboxes at a provider, restricted to this installation.

Providers are not trusted to filter their lists, nor that a 404 is about the sandbox.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import cast
from urllib.parse import urlencode

from e2b.api.client.api.sandboxes import get_sandboxes_sandbox_id, get_v2_sandboxes
from e2b.api.client.client import AuthenticatedClient
from e2b.api.client.models import ListedSandbox, SandboxDetail
from e2b.api.client.types import UNSET, Response

from sandbox_server.domain.errors import BackendError, BackendUnavailable
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.e2b.failures import ErrorAnswer
from sandbox_server.providers.e2b.listing import read_all
from sandbox_server.providers.e2b.templates import Ask
from sandbox_server.providers.protocol.errors import SandboxGone, SandboxNotRunning
from sandbox_server.providers.protocol.provider import ProviderSandbox, ReportedState

_GONE = frozenset({HTTPStatus.NOT_FOUND})
# Calls that a provider may answer by 404 while the sandbox is paused.
_NEED_RUNNING = frozenset({"pause", "set-timeout", "metrics", "snapshot"})


class Lookup:
    """Finds sandboxes at one provider, by id or by label."""

    def __init__(
        self, name: str, api: AuthenticatedClient, ask: Ask, *, installation_id: str, page: int
    ) -> None:
        self._name = name
        self._api = api
        self._ask = ask
        self._installation_id = installation_id
        self._page = page

    async def read(self, provider_id: str, *, limit: timedelta | None = None) -> ProviderSandbox:
        """Get a sandbox by id; its labels may be missing, but must not be of another installation."""
        try:
            answer = await self._ask(
                "info",
                get_sandboxes_sandbox_id.asyncio_detailed(provider_id, client=self._api),
                accepted=_GONE,
                limit=limit,
            )
        except ErrorAnswer as error:
            missing = error
        else:
            found = wire.provider_sandbox(cast("SandboxDetail", answer.parsed))
            if found.installation_id in {None, self._installation_id}:
                return found
            raise SandboxGone(self._name, provider_id)
        if not missing.names(provider_id) and await self._is_listed(provider_id, limit=limit):
            raise missing.lacks_call(self._name)
        raise SandboxGone(self._name, provider_id)

    async def find(
        self, labels: Mapping[str, str], *, limit: timedelta | None = None
    ) -> Sequence[ProviderSandbox]:
        """List our sandboxes with these labels; `limit` is per page."""
        wanted = {wire.INSTALLATION: self._installation_id, **labels}
        listed = await self._list(wanted, limit=limit)
        # Filtered here too: some providers ignore the filter and list all sandboxes.
        ours = {
            sandbox.sandbox_id: sandbox for sandbox in listed if wire.has_labels(sandbox, wanted)
        }
        return [wire.provider_sandbox(sandbox) for sandbox in ours.values()]

    async def explain_missing(
        self, call: str, provider_id: str, answer: ErrorAnswer
    ) -> BackendError:
        """Resolve a 404: the sandbox is gone or paused, or the provider lacks the call."""
        try:
            found = await self.read(provider_id)
        except SandboxGone as gone:
            return gone
        if found.state is ReportedState.PAUSED and call in _NEED_RUNNING:
            return SandboxNotRunning(self._name, provider_id)
        if answer.names(provider_id):
            text = f"answered 404 to `{answer.request}`, though it has the sandbox"
            return BackendUnavailable(self._name, f"{text}: {answer.message}")
        return answer.lacks_call(self._name)

    async def _is_listed(self, provider_id: str, *, limit: timedelta | None) -> bool:
        # Without a filter: a sandbox may have lost its labels.
        listed = await self._list({}, limit=limit)
        return any(sandbox.sandbox_id == provider_id for sandbox in listed)

    async def _list(
        self, labels: Mapping[str, str], *, limit: timedelta | None
    ) -> list[ListedSandbox]:
        async def read_page(token: str) -> Response[list[ListedSandbox]]:
            request = get_v2_sandboxes.asyncio_detailed(
                client=self._api,
                metadata=urlencode(labels) or UNSET,
                limit=self._page,
                next_token=token or UNSET,
            )
            answer = await self._ask("list", request, limit=limit)
            return cast("Response[list[ListedSandbox]]", answer)

        return await read_all(self._name, read_page)
