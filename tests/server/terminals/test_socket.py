import pytest
from fastapi import WebSocket, WebSocketDisconnect

from sandbox_server.terminals.socket import send_frame


@pytest.fixture
async def disconnected():
    """Accept a connection that is lost when something is sent."""

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        if message["type"] == "websocket.send":
            raise OSError("the connection is lost")

    socket = WebSocket({"type": "websocket"}, receive, send)
    await socket.accept()
    return socket


async def test_send_frame__each_sender_is_told_that_the_viewer_is_gone(disconnected):
    # Output and state changes are sent side by side: the second one finds a socket that is closed already.
    for frame in (b"output", {"type": "sandbox", "state": "paused"}):
        with pytest.raises(WebSocketDisconnect):
            await send_frame(disconnected, frame)
