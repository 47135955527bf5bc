"""Runs of agents as the API tells them."""

from typing import Any

from sandbox_client.models import AgentResult, AgentRunOutcome, AgentRunRead
from sandbox_server.agents import results
from sandbox_server.db.models import Command
from sandbox_server.domain.agents import state_of_run

_FACTS = ("id", "sandbox_id", "state_reason", "created_at", "started_at", "ended_at")
_ASKED = ("agent", "prompt", "model", "session_id", "timeout_s", "afterwards")


def view_run(row: Command) -> AgentRunRead:
    return AgentRunRead(**_facts_of(row))


def view_run_outcome(row: Command, found: results.AgentResult | None) -> AgentRunOutcome:
    """Convert a run with its result."""
    facts = _facts_of(row)
    if found is None:
        return AgentRunOutcome(**facts, result=None)
    result = AgentResult.model_validate(found.document())
    return AgentRunOutcome(**facts | {"state": result.state}, result=result)


def _facts_of(row: Command) -> dict[str, Any]:
    asked = row.agent or {}
    return {
        **{name: getattr(row, name) for name in _FACTS},
        **{name: asked.get(name) for name in _ASKED},
        "state": state_of_run(row.state, row.exit_code),
    }
