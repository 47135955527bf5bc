"""A server for the inside of a sandbox, of the standard library alone: it tells every caller what reached it.

POST /answer sends the body as the whole of the answer. /events sends one event, and another once /go was asked for. An
upgrade to `websocket` gets its frames back, to anything else its bytes. /json/version and /json/list name WebSockets at
the host of the request, as a browser does. All else gets JSON of the request, as it came.
"""

import asyncio
import base64
import hashlib
import json
import sys

CONTINUED, CLOSE, PING, PONG = 0, 8, 9, 10
UUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


async def main(port):
    go = asyncio.Event()

    async def serve(reader, writer):
        try:
            while await answer(reader, writer, go):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=2**20)
    await server.serve_forever()


async def answer(reader, writer, go):
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = [line.partition(": ")[::2] for line in lines[1:]]
    named = {name.lower(): value for name, value in headers}
    path = lines[0].split()[1]
    if "upgrade" in named:
        await upgrade(reader, writer, named, lines)
        return False
    body = await read_body(reader, named)
    if path == "/answer":
        writer.write(body)
        await writer.drain()
        return False
    if path == "/events":
        await tell_events(writer, go)
        return False
    if path == "/go":
        go.set()
    told = {
        "target": path,
        "method": lines[0].split()[0],
        "headers": headers,
        "size": len(body),
        "hash": hashlib.sha256(body).hexdigest(),
    }
    text = json.dumps(described(path, named) or told).encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(text)
    )
    if not lines[0].startswith("HEAD"):
        writer.write(text)
    await writer.drain()
    return True


def described(path, named):
    url = f"ws://{named.get('host')}/devtools"
    front_end = f"https://chrome-devtools-frontend.appspot.com/serve_rev/@1/inspector.html?ws={url[5:]}/page/P1"
    page = {"type": "page", "id": "P1", "devtoolsFrontendUrl": front_end}
    return {
        "/json/version": {"Browser": "Chrome/1", "webSocketDebuggerUrl": f"{url}/browser/B1"},
        "/json/list": [{**page, "webSocketDebuggerUrl": f"{url}/page/P1"}],
    }.get(path.rstrip("/"))


async def read_body(reader, named):
    if named.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(named.get("content-length", 0)))
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


async def tell_events(writer, go):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n")
    await writer.drain()
    await go.wait()
    go.clear()
    writer.write(b"data: two\n\n")
    await writer.drain()


async def upgrade(reader, writer, named, lines):
    protocol = named["upgrade"]
    accept = hashlib.sha1(named.get("sec-websocket-key", "").encode() + UUID).digest()
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"
        b"Sec-WebSocket-Accept: %s\r\n" % (protocol.encode(), base64.b64encode(accept))
    )
    if "sec-websocket-protocol" in named:
        chosen = named["sec-websocket-protocol"].split(",")[-1].strip()
        writer.write(b"Sec-WebSocket-Protocol: %s\r\n" % chosen.encode())
    writer.write(b"\r\n")
    if protocol != "websocket":
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        return
    send(writer, 1, "\r\n".join(lines).encode())
    opcode = None
    while opcode != CLOSE:
        final, opcode, payload = await receive(reader)
        send(writer, PONG if opcode == PING else opcode, payload, final=final)
        await writer.drain()


async def receive(reader):
    first, second = await reader.readexactly(2)
    size = second & 127
    if size > 125:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
    mask = await reader.readexactly(4)
    masked = await reader.readexactly(size)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    payload = (int.from_bytes(masked, "big") ^ key).to_bytes(size, "big")
    return first & 128, first & 15, payload


def send(writer, opcode, payload, *, final=128):
    size = len(payload)
    if size < 126:
        head = bytes([final | opcode, size])
    elif size < 65536:
        head = bytes([final | opcode, 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([final | opcode, 127]) + size.to_bytes(8, "big")
    writer.write(head + payload)


asyncio.run(main(int(sys.argv[1])))
