import logging
from datetime import timedelta
from typing import Final

from sandbox_server.sandboxes.sandbox_access import UsableSandbox

log = logging.getLogger(__name__)

_GRACE = timedelta(seconds=10)
_LIMIT = timedelta(seconds=60)

# Run as the sandbox's user: root there may not read the environment of others. Descendants may have dropped the variable,
# as sudo does. They are remembered, since they outlive their parents.
_END: Final = r"""(
tree() { for pid in "$@"; do echo "$pid"; tree $(cat "/proc/$pid"/task/*/children 2>/dev/null); done; }
living() { for pid in "$@"; do grep -qs '^State:.[^ZX]' "/proc/$pid/status" && echo "$pid"; done; }
look() {
    found=$(tree $(grep -slzxF -- "$MARK" /proc/[0-9]*/environ | cut -d / -f 3))
    left=$(living $(printf '%s\n' $left $found | sort -u))
}
end() { kill "$@" 2>/dev/null || sudo -n kill "$@" 2>/dev/null; }
left=; look
[ -z "$left" ] || end -TERM $left
tries=0
until [ -z "$left" ]; do
    sleep 0.1; look; tries=$((tries + 1))
    [ "$tries" -lt "$PATIENCE" ] || end -KILL $left
    [ "$tries" -lt "$((PATIENCE + 50))" ] || exit 1
done
)"""


async def end_processes_with(
    used: UsableSandbox, variable: str, value: str, *, grace: timedelta = _GRACE
) -> None:
    """Terminate all processes that inherited an environment variable, and kill what is left after the grace time."""
    envs = {"MARK": f"{variable}={value}", "PATIENCE": str(int(grace.total_seconds() * 10))}
    inside = used.backend.inside(used.access)
    said = await inside.run_command(_END, envs=envs, timeout=_LIMIT)
    if said.exit_code:
        log.warning("processes left sandbox_id=%s %s=%s", used.row.id, variable, value)
