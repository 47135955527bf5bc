from typing import Any

from fastmcp import FastMCP


class _NoState:
    async def get(self, **_key: object) -> None:
        return None


class LeanFastMCP(FastMCP[Any]):
    """A FastMCP that keeps no state of sessions.

    None of ours has any, but it is asked for at each call, and the first one would load a store for it: 8 MB, for which an
    agent's first call waits 0.2 s and more. Where fastmcp names it otherwise, all goes on as it does there.
    """

    _state_store = _NoState()  # type: ignore[assignment]
