from typing import Any

from sandbox_server.db.models import Repository
from sandbox_server.domain.tasks.forges import RepositoryFacts


def facts_of(row: Repository) -> RepositoryFacts:
    """Describe a stored repository as adapters take it."""
    return RepositoryFacts(
        external_id=row.external_id,
        full_name=row.full_name,
        default_branch=row.default_branch,
        private=row.private,
        url=row.url,
        size_bytes=row.size_bytes,
        installation_id=row.installation_id,
        permissions=_permissions(row),
    )


def _permissions(row: Repository) -> frozenset[str]:
    if row.may_push is None:
        return frozenset()
    return frozenset({"pull", "push"} if row.may_push else {"pull"})


def columns_of(facts: RepositoryFacts) -> dict[str, Any]:
    """List the columns that the forge decides."""
    return {
        "full_name": facts.full_name,
        "default_branch": facts.default_branch,
        "private": facts.private,
        "url": facts.url,
        "may_push": facts.may_push,
        "size_bytes": facts.size_bytes,
        "installation_id": facts.installation_id,
    }


def describe(row: Repository, facts: RepositoryFacts) -> None:
    for column, value in columns_of(facts).items():
        setattr(row, column, value)
