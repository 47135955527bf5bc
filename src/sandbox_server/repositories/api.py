from typing import Annotated

from fastapi import APIRouter, Query

from sandbox_client.models import FullName, Page, RepositoryCreate, RepositoryRead, RepositoryUpdate
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import ASKED_OF_FORGE, may_fail_with
from sandbox_server.http.deps import Operator, Reader, RepositoryIdPath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.repositories.service import Repositories, RepositoryChanges
from sandbox_server.repositories.views import read_repository, stored_settings

RepositoriesDep = Annotated[Repositories, depends_on(Repositories)]
NameQuery = Annotated[FullName | None, Query(description="Only repositories of this name.")]

router = APIRouter(route_class=JsonRoute, prefix="/v1/repositories", tags=["repositories"])


@router.post("", status_code=201)
@may_fail_with(*ASKED_OF_FORGE, errors.ForgeNotFound, errors.NameTaken)
async def create_repository(
    body: RepositoryCreate,
    idempotency: IdempotencyDep,
    caller: Operator,
    repositories: RepositoriesDep,
) -> RepositoryRead:
    """Add a repository. The server reads it from its forge and checks the permissions of the credential."""
    wanted = RepositoryChanges(settings=stored_settings(body.settings), envs=body.envs)
    entry = await repositories.create(
        caller,
        forge=body.forge,
        full_name=body.full_name,
        wanted=wanted,
        idempotency=idempotency.of(body),
    )
    return read_repository(entry)


@router.get("")
async def list_repositories(
    caller: Reader,
    repositories: RepositoriesDep,
    full_name: NameQuery = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[RepositoryRead]:
    """List repositories, newest first."""
    entries = await repositories.list_page(
        caller, full_name=full_name, limit=limit + 1, before=read_id(cursor)
    )
    items = [read_repository(entry) for entry in entries]
    return page_of(entries, items, limit=limit, position=lambda entry: entry.row.id)


@router.get("/{repository_id}")
async def get_repository(
    repository_id: RepositoryIdPath, caller: Reader, repositories: RepositoriesDep
) -> RepositoryRead:
    """Get a repository and its settings."""
    return read_repository(await repositories.get(caller, repository_id))


@router.patch("/{repository_id}")
async def update_repository(
    repository_id: RepositoryIdPath,
    body: RepositoryUpdate,
    caller: Operator,
    repositories: RepositoriesDep,
) -> RepositoryRead:
    """Change settings or variables. Tasks keep the settings that they were created with."""
    changes = RepositoryChanges(
        settings={} if body.settings is None else stored_settings(body.settings),
        envs=body.envs,
        triggers_paused=body.triggers_paused,
    )
    return read_repository(await repositories.update(caller, repository_id, changes))


@router.delete("/{repository_id}", status_code=204)
@may_fail_with(errors.RepositoryInUse)
async def delete_repository(
    repository_id: RepositoryIdPath, caller: Operator, repositories: RepositoriesDep
) -> None:
    """Remove a repository without open tasks from this server. Nothing changes at the forge."""
    await repositories.remove(caller, repository_id)


@router.post("/{repository_id}/prepare", status_code=202)
@may_fail_with(*ASKED_OF_FORGE)
async def prepare_repository(
    repository_id: RepositoryIdPath, caller: Operator, repositories: RepositoriesDep
) -> RepositoryRead:
    """Prepare a snapshot with the default branch checked out and its setup run, from which tasks and sandboxes start.

    The repository is read from its forge again and its mirror is updated. Pushes to the default branch prepare a new
    snapshot, at most once an hour. `prepare_error` has the reason of a failure.
    """
    return read_repository(await repositories.prepare(caller, repository_id))
