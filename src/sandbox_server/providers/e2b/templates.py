from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import quote

from e2b.api.client.api.templates import (
    delete_templates_template_id,
    get_templates_aliases_alias,
    get_templates_template_id_builds_build_id_status,
    get_templates_template_id_files_hash,
    get_v2_templates,
    post_v3_templates,
    post_v_2_templates_template_id_builds_build_id,
)
from e2b.api.client.client import AuthenticatedClient
from e2b.api.client.models import (
    BuildLogEntry,
    BuildStatusReason,
    Template,
    TemplateAliasResponse,
    TemplateBuildFileUpload,
    TemplateBuildInfo,
    TemplateBuildRequestV3,
    TemplateBuildStatus,
    TemplateRequestResponseV3,
    TemplateStep,
)
from e2b.api.client.types import UNSET, Response, Unset
from e2b.template.utils import strip_ansi_escape_codes

from sandbox_server.domain.templates import Definition
from sandbox_server.providers.e2b.build_request import build_request
from sandbox_server.providers.e2b.failures import ErrorAnswer
from sandbox_server.providers.e2b.listing import read_all
from sandbox_server.providers.e2b.uploads import archive_of
from sandbox_server.providers.protocol.build_context import BuildContext
from sandbox_server.providers.protocol.provider import (
    BuildProgress,
    BuildState,
    FoundTemplate,
    ProviderTemplate,
    RequestedBuild,
)

T = TypeVar("T")

ENTRIES = 100
"""Log entries per request."""

_PAGE = 100
_GONE = frozenset({HTTPStatus.NOT_FOUND})
# A 400 is the answer to a name that no template could have.
_NOT_OURS = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
_LOOKUP_LIMIT = timedelta(seconds=10)
_LINES_OF_FAILURE = 10


class Ask(Protocol):
    """Sends a request; see `E2BBackend`."""

    async def __call__(
        self,
        call: str,
        request: Coroutine[Any, Any, Response[T]],
        *,
        accepted: frozenset[int] = ...,
        changes: bool = ...,
        limit: timedelta | None = ...,
    ) -> Response[T]: ...


Put = Callable[[str, bytes, Mapping[str, str]], Awaitable[None]]


class ProviderTemplates:
    """Templates of one provider, and their builds."""

    def __init__(self, name: str, api: AuthenticatedClient, ask: Ask, put: Put) -> None:
        self._name = name
        self._api = api
        self._ask = ask
        self._put = put

    async def request_build(self, name: str, definition: Definition) -> RequestedBuild:
        """Request a build of the template, which is created if it is new."""
        cpu_count, memory_mb = definition.cpu_count, definition.memory_mb
        answer = await self._ask(
            "request-build",
            post_v3_templates.asyncio_detailed(
                client=self._api,
                body=TemplateBuildRequestV3(
                    name=name, cpu_count=cpu_count or UNSET, memory_mb=memory_mb or UNSET
                ),
            ),
            changes=True,
        )
        named = cast("TemplateRequestResponseV3", answer.parsed)
        return RequestedBuild(template_id=named.template_id, build_id=named.build_id)

    async def start_build(
        self,
        build: RequestedBuild,
        definition: Definition,
        *,
        context: BuildContext | None = None,
        force: bool,
    ) -> None:
        """Upload files that the provider lacks, and start the build."""
        body = build_request(definition, context=context, force=force)
        for step in [] if isinstance(body.steps, Unset) else body.steps:
            if context is not None and step.files_hash:
                await self._provide(build, context, step)
        await self._ask(
            "start-build",
            post_v_2_templates_template_id_builds_build_id.asyncio_detailed(
                build.template_id,
                build.build_id,
                client=self._api,
                body=body,
            ),
            changes=True,
        )

    async def _provide(
        self, build: RequestedBuild, context: BuildContext, step: TemplateStep
    ) -> None:
        source = cast("list[str]", step.args)[0]
        answer = await self._ask(
            "find-build-files",
            get_templates_template_id_files_hash.asyncio_detailed(
                build.template_id, cast("str", step.files_hash), client=self._api
            ),
        )
        link = cast("TemplateBuildFileUpload", answer.parsed)
        if link.present or not link.url:
            return
        headers = {} if isinstance(link.headers, Unset) else link.headers.to_dict()
        await self._put(link.url, archive_of(context, source), headers)

    async def read_build(self, build: RequestedBuild, *, offset: int) -> BuildProgress:
        """Get the progress of a build, with up to `ENTRIES` log entries after `offset`."""
        answer = await self._ask(
            "read-build",
            get_templates_template_id_builds_build_id_status.asyncio_detailed(
                build.template_id,
                build.build_id,
                client=self._api,
                logs_offset=offset,
                limit=ENTRIES,
            ),
        )
        info = cast("TemplateBuildInfo", answer.parsed)
        return BuildProgress(
            state=BuildState(info.status.value),
            lines=[_line(entry) for entry in info.log_entries],
            failure=_failure(info.reason) if info.status is TemplateBuildStatus.ERROR else None,
        )

    async def list_all(self) -> Sequence[ProviderTemplate]:
        """List the templates of our API key."""
        listed = await read_all(self._name, self._read_page)
        return list({template.template_id: _template(template) for template in listed}.values())

    async def _read_page(self, token: str) -> Response[list[Template]]:
        request = get_v2_templates.asyncio_detailed(
            client=self._api, limit=_PAGE, next_token=token or UNSET
        )
        return cast("Response[list[Template]]", await self._ask("list-templates", request))

    async def find(self, name: str) -> FoundTemplate | None:
        """Find a template by name; of another team's template the id is unknown."""
        try:
            found = await self._ask(
                "find-template",
                get_templates_aliases_alias.asyncio_detailed(
                    quote(name, safe=""), client=self._api
                ),
                accepted=_NOT_OURS,
                limit=_LOOKUP_LIMIT,
            )
        except ErrorAnswer as answer:
            return FoundTemplate() if answer.status == HTTPStatus.FORBIDDEN else None
        return FoundTemplate(id=cast("TemplateAliasResponse", found.parsed).template_id)

    async def delete(self, template_id: str) -> None:
        """Delete a template by id or name; idempotent."""
        request = delete_templates_template_id.asyncio_detailed(
            quote(template_id, safe=""), client=self._api
        )
        try:
            await self._ask("delete-template", request, accepted=_GONE, changes=True)
        except ErrorAnswer as answer:
            missing = answer
        else:
            return
        if not missing.names(template_id) and await self._is_listed(template_id):
            raise missing.lacks_call(self._name)

    async def _is_listed(self, template_id: str) -> bool:
        return any(
            template_id in {template.id, *template.names} for template in await self.list_all()
        )


def _template(template: Template) -> ProviderTemplate:
    names = [name.rpartition("/")[2] for name in (*template.aliases, *template.names)]
    return ProviderTemplate(
        id=template.template_id,
        names=list(dict.fromkeys(names)) or [template.template_id],
        is_ready=template.build_status is TemplateBuildStatus.READY or template.build_count > 1,
        cpu_count=template.cpu_count,
        memory_mb=template.memory_mb,
    )


def _line(entry: BuildLogEntry) -> str:
    return strip_ansi_escape_codes(entry.message).replace("\0", "")


def _failure(reason: BuildStatusReason | Unset) -> str:
    if isinstance(reason, Unset):
        return "Its provider did not say why."
    return "\n".join(_words_of_failure(reason))


def _words_of_failure(reason: BuildStatusReason) -> Iterator[str]:
    yield reason.message
    entries = reason.log_entries or []
    for entry in entries[-_LINES_OF_FAILURE:]:
        if (line := _line(entry)) != reason.message:
            yield line
