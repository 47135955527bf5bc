import asyncio
import socket

from sandbox_server.supervisor.listeners import listen


async def test_listeners__small_writes_are_sent_without_delay():
    [listener] = listen("127.0.0.1", 0)
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda _, writer: accepted.set_result(writer), sock=listener
    )
    async with server, asyncio.timeout(10):
        _, client = await asyncio.open_connection(*listener.getsockname())
        writer = await accepted
        asked = writer.get_extra_info("socket")
        assert asked.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        for each in (client, writer):
            each.close()
            await each.wait_closed()
