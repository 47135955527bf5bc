"""The last line of an agent's run, which its command keeps in the sandbox too: nobody may be there to hear it."""

from sandbox_server.db.models import Command
from sandbox_server.domain.agents import exit_code_of
from sandbox_server.domain.errors import BackendError, SandboxError
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

_LONGEST = 512 * 1024


async def find_last_line(used: UsableSandbox, run: Command) -> bytes:
    """Find the result of a run in its sandbox, if there is one by now."""
    path = (run.agent or {}).get("kept_at")
    if path is None:
        return b""
    try:
        kept = await used.backend.inside(used.access).read_file(path, limit=_LONGEST)
    except BackendError:
        raise
    except SandboxError:  # there is none, or nothing that could be one
        return b""
    return kept if exit_code_of(kept) is not None else b""
