"""Conditions on sandboxes: queued, in a slot, and at which backends.

States are constants in them: a generic plan with parameters could not use a partial index.
"""

from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, and_, case, func, literal_column, or_
from sqlalchemy.dialects.postgresql import array

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.capacity import OCCUPIES_SLOT
from sandbox_server.domain.state import State

Selected = TypeVar("Selected", bound=Select[*tuple[Any, ...]])


def _in(*states: State) -> ColumnElement[bool]:
    return Sandbox.state.in_([literal_column(f"'{state}'") for state in states])


is_queued = and_(Sandbox.target == literal_column("'running'"), _in(State.QUEUED, State.PAUSED))
in_time = or_(
    Sandbox.queue_expires_at.is_(None), Sandbox.queue_expires_at > func.statement_timestamp()
)
possible_backends = case((_in(State.QUEUED), Sandbox.candidates), else_=array([Sandbox.backend]))
queue_order = (Sandbox.priority.desc(), Sandbox.queued_at, Sandbox.id)

_exists = Sandbox.ended_at.is_(None)
runs = and_(_exists, _in(*sorted(OCCUPIES_SLOT)))
is_paused = and_(_exists, _in(State.PAUSED))


def lock_rows(rows: Selected) -> Selected:
    """Lock rows of backends or tenants, but allow foreign keys to them.

    Otherwise two transactions that have inserted sandboxes would deadlock.
    """
    return rows.with_for_update(key_share=True).execution_options(populate_existing=True)
