from typing import Annotated, Any

from fastapi import APIRouter, Body, UploadFile

from sandbox_server.browserbase.models import ContextBody
from sandbox_server.browserbase.views import view_context, view_extension, view_new_context
from sandbox_server.browsers.contents import BrowserContexts, BrowserExtensions
from sandbox_server.http.deps import Operator, Reader, depends_on
from sandbox_server.http.json_body import JsonRoute

router = APIRouter(route_class=JsonRoute, prefix="/browserbase/v1", include_in_schema=False)

ContextsDep = Annotated[BrowserContexts, depends_on(BrowserContexts)]
ExtensionsDep = Annotated[BrowserExtensions, depends_on(BrowserExtensions)]


@router.post("/contexts", status_code=201)
async def create_context(
    body: Annotated[ContextBody, Body(default_factory=ContextBody)],
    caller: Operator,
    contexts: ContextsDep,
) -> dict[str, Any]:
    """Create a context with an empty profile."""
    return view_new_context(await contexts.create(caller, name=body.name))


@router.get("/contexts")
async def list_contexts(caller: Reader, contexts: ContextsDep) -> list[dict[str, Any]]:
    """List contexts, newest first."""
    return [view_context(row) for row in await contexts.list_all(caller)]


@router.get("/contexts/{context_id}")
async def get_context(context_id: str, caller: Reader, contexts: ContextsDep) -> dict[str, Any]:
    """Get a context."""
    return view_context(await contexts.get(caller, context_id))


@router.put("/contexts/{context_id}")
async def update_context(
    context_id: str, caller: Operator, contexts: ContextsDep
) -> dict[str, Any]:
    """Return the upload fields of a context, which are without use."""
    return view_new_context(await contexts.get(caller, context_id))


@router.delete("/contexts/{context_id}", status_code=204)
async def delete_context(context_id: str, caller: Operator, contexts: ContextsDep) -> None:
    """Delete a context with its profile."""
    await contexts.remove(caller, context_id)


@router.post("/extensions", status_code=201)
async def create_extension(
    file: UploadFile, caller: Operator, extensions: ExtensionsDep
) -> dict[str, Any]:
    """Store an extension, as a zip archive."""
    name = file.filename or "extension.zip"
    return view_extension(await extensions.create(caller, name, await file.read()))


@router.get("/extensions/{extension_id}")
async def get_extension(
    extension_id: str, caller: Reader, extensions: ExtensionsDep
) -> dict[str, Any]:
    """Get an extension."""
    return view_extension(await extensions.get(caller, extension_id))


@router.delete("/extensions/{extension_id}", status_code=204)
async def delete_extension(extension_id: str, caller: Operator, extensions: ExtensionsDep) -> None:
    """Delete an extension."""
    await extensions.remove(caller, extension_id)
