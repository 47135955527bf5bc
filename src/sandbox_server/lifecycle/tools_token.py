import json
import secrets
from datetime import timedelta

from sandbox_server.db.sandboxes import SandboxRepository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ToolsRefused
from sandbox_server.lifecycle.sealed import open_tools_token, seal_tools_token
from sandbox_server.lifecycle.using import UsableSandbox
from sandbox_server.vault import Vault

TOOLS_FILE = "/etc/sandbox/tools.json"
"""Where a sandbox's tool server finds what its server tells it, and looks again before it refuses a caller."""

_BYTES = 32
_LIMIT = timedelta(seconds=20)

# A template's services may be other accounts, open to the world: none of them may find the token, here or in a list of
# processes. It is replaced in one step, since the tool server may be reading.
_WRITE = f"""
set -e
umask 022
mkdir -p /etc/sandbox
new=$(mktemp /etc/sandbox/.tools.XXXXXX)
trap 'rm -f "$new"' EXIT
printf %s "$SANDBOX_TOOLS" > "$new"
chown user "$new"
mv -fT "$new" {TOOLS_FILE}
"""


class ToolsTokens:
    """The secrets that tool servers in sandboxes ask their callers for; whoever has a key of ours needs none."""

    def __init__(self, sessions: Sessions, vault: Vault) -> None:
        self._sessions = sessions
        self._vault = vault

    async def get(self, used: UsableSandbox) -> str:
        """Give a sandbox's token; it is made at first use, one for all servers, and put where the tool server reads it."""
        row = used.row
        if row.tools_token_sealed is not None:
            return open_tools_token(self._vault, row.id, row.tools_token_sealed)
        made = seal_tools_token(self._vault, row.id, secrets.token_urlsafe(_BYTES))
        async with without_transaction(self._sessions) as session:
            kept = await SandboxRepository(session).keep_tools_token(row.id, made)
        token = open_tools_token(self._vault, row.id, kept)
        if kept == made:  # else it is on its way there, or was lost, which the tool server tells
            await self.write(used, token)
        return token

    async def write(self, used: UsableSandbox, token: str) -> None:
        """Put the token where the tool server reads it, be it there already or not."""
        finished = await used.backend.inside(used.access).run_command(
            _WRITE,
            timeout=_LIMIT,
            user="root",
            envs={"SANDBOX_TOOLS": json.dumps({"token": token})},
        )
        if finished.exit_code != 0:
            said = finished.output.decode(errors="replace").replace(token, "…").strip()
            raise ToolsRefused(f"The file {TOOLS_FILE} cannot be written in the sandbox: {said}")
