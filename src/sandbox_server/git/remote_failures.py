import re
from datetime import timedelta

from sandbox_server.domain.errors import GitError, RemoteRefused, RemoteUnreachable

_ASK_AGAIN = timedelta(seconds=30)

# In the words of git and libcurl with LC_ALL=C.
_REFUSED = re.compile(
    r"Authentication failed|could not read (Username|Password)|returned error: (401|403|404)"
    r"|repository '.*' not found|Repository not found|unable to update url base from redirection"
    r"|returned error: 30\d",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"Could not resolve host|Failed to connect|Couldn't connect|Connection (refused|reset|timed out)"
    r"|returned error: (429|5\d\d)|Operation too slow|timed out|early EOF|RPC failed"
    r"|the remote end hung up|Empty reply|SSL|TLS|Recv failure|transfer closed",
    re.IGNORECASE,
)


def remote_failure(doing: str, said: str) -> GitError | None:
    """Tell a remote that refuses from one that does not answer; None if git failed here."""
    if _REFUSED.search(said):
        return RemoteRefused(doing, said)
    if _UNREACHABLE.search(said):
        return RemoteUnreachable(doing, said, retry_after=_ASK_AGAIN)
    return None
