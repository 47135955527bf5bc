from typing import Any

from fastmcp import FastMCP


class _NoState:
    async def get(self, **_key: object) -> None:
        return None


def _nothing_to_mirror(_tool: str) -> None:
    return None


class LeanFastMCP(FastMCP[Any]):
    """A FastMCP that keeps no state of sessions, and lists no tools unless it is asked for them.

    None of ours has any, but it is asked for at each call, and the first one would load a store for it: 8 MB, for which an
    agent's first call waits 0.2 s and more. Where fastmcp names it otherwise, all goes on as it does there.

    For clients of 2026 it would list all tools before each call, to see whether the one that is called has arguments that must also
    be headers: 2 ms, and a wait for servers that are just being started.
    """

    _state_store = _NoState()  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._mcp_server.get_tool_input_schema = _nothing_to_mirror
