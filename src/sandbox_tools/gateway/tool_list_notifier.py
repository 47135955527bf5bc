import asyncio
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from mcp.server.connection import Connection
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types import SubscriptionsListenRequestParams

_SECONDS_PER_CLIENT = 5


class ToolListNotifier(Middleware):
    """Notifies every client of changes of the tool list; fastmcp notifies only the client whose call changed it."""

    def __init__(self, server: FastMCP) -> None:
        self._connections: set[Connection] = set()
        self._bus = InMemorySubscriptionBus()
        self._notifying: asyncio.Task[None] | None = None
        self._again = False
        # Clients of protocol 2026 subscribe with a request that fastmcp does not handle.
        server._mcp_server.add_request_handler(  # noqa: SLF001
            "subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(self._bus)
        )

    async def on_message(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Any:
        if context.fastmcp_context is not None and context.fastmcp_context.request_context:
            self._remember(context.fastmcp_context.session._connection)  # noqa: SLF001 - as fastmcp's own middleware does
        return await call_next(context)

    def notify(self) -> None:
        """Notify all clients soon; simultaneous changes are combined."""
        self._again = True
        if self._notifying is None or self._notifying.done():
            self._notifying = asyncio.create_task(self._notify_all())

    def _remember(self, connection: Connection) -> None:
        if connection in self._connections or not connection.has_standalone_channel:
            return
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    async def _notify_all(self) -> None:
        while self._again:
            self._again = False
            await self._bus.publish(ToolsListChanged())
            tasks = [
                asyncio.create_task(connection.send_tool_list_changed())
                for connection in self._connections
                if connection.initialize_accepted
            ]
            if tasks:
                _, slow = await asyncio.wait(tasks, timeout=_SECONDS_PER_CLIENT)
                for task in slow:
                    task.cancel()
