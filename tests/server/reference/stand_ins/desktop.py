"""A desktop service for the inside of a sandbox without a desktop, of the standard library alone.

It speaks the interface of docs/desktop.md on port 49990, and RFB 3.8 on its WebSocket: a framebuffer of one colour, in
which the last pointer position is a white square of 8 pixels. `/log` tells what it was asked, without a token.
"""

import asyncio
import base64
import hashlib
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

UUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CLOSE, PING, PONG = 8, 9, 10
INPUT = {4: 8, 5: 6}
SIZES = {0: 20, 3: 10, **INPUT}
# Three seconds of one colour, 64 by 48 pixels, in fragments.
FILM = zlib.decompress(
    base64.b64decode(
        "eNqVVc2LHEUUr57NLmEJupFlk0OQEj14yM50T2aHdaFh1mVxDhEiaE5KU9NVvV1MVXdNVc1XTgvJIYq3BQ/xJF686U0vgQh78OQ1"
        "RvTgRSKIAf+B8VXPTLZ32E2wZrreR/3ee1XvvepGCF1L7Fhxk28hVEGOwtOUqhGA/KPM8wFCSMhBStGpsfS0IF7xPxneadSi3EIv"
        "HBUweGo16QL/se0WMZde4P3/xXWTXyzek5QTYLCki+ea7vCj44JsplTo+cqAU1ZG3gY5b5OMCuYwXk3yLAFmfSALp+UtvEWna9eo"
        "Zklpi5f6WuAZ/8zYjgD6tbGGljBHZBAH5yagBUdqA23PEZduAh4L3hnVm42zUnV1MnFHA9Se9+6j1ckfaOMA6K+X/77QcukuprvH"
        "n37joQvpz6/+BOA1RYyahXfPmrHWlFyCbOKSvA7ynYWwgInzkvy2HLCRq4HVBUUl/+UR9ql1tdqSrKBuvFGuC9RSE6VE2egiF8YC"
        "TaGBXb7XZJKWc3oLmqyoh3X6Ctqe6l3xK11vuoV1m1C7sJurVvczoMszP6oy7VsjKYF4lf2V5clk97f9vx7++aT9/RfXf8FP3vzn"
        "masE3sRxrhkOmlvAtqugqr1/a/+9zQbevb0Ha5TFsLCXq7FgicV137+xWffrDp1aq3ZqteFwWHVNmAuSVXN9UHN+q6mVAjC5sjzP"
        "zA6OSYfEoY+h0cIAU9YRedwN/R34YZIRMTbMSViyEC4BNv0OcD5WZgxwmCNNw6DqAwQmLPmI0cj5chaRJtkBC4MmjlOdSxKBaeAK"
        "KAQ3gNgebdPYAhP3JMyUEXonz1hYD64HAU6IsZEyXa7AaOagp6I8SQxzRjbVYGBgUeR5l6QgRCc6I3jMThQ+znQRIuaSWLcNnlmm"
        "BQEQ6Duir8k4inOpSLEhyA3UnGfgAoCaOEyiiWTO1ZDxg9Qq4LpsDMthfWvORnCrXfSYZSzuO1eFuUuJZiZ1iY7DWCdYdiAPLpMg"
        "hPUbVR/3XPTQrzaBVc5NQckobL4DjLFMhQ3MFSQVSgc5b0CBeqGPDqGjXmf37+1c/gxV1nuPUOvfbXRx43h4dPTlw/7jT/qPHYKe"
        "0dquG2+e39rolbNbuzXVTVt7fgfdfdqYtjVa3X2Ar3z7ofI+Py/y0ksir54d+fC8yK/NIq/sPmhd+eo74LiEcgH9wAL1Tr8OlxY+"
        "I797s3DPPzjLPzxXHc5UK/WpCo6h5y8m/h9FV2eq"
    )
)
OWN_FILM = Path("film.mp4")
"""A film to record instead; `film.size` says how much of it has been recorded so far."""
NOT_FOUND = 404, {"detail": "Not found."}
SETTINGS = Path("/etc/sandbox/tools.json")


class Desktop:
    def __init__(self):
        self.width, self.height, self.dpi = 1024, 768, 96
        self.cursor = (512, 384)
        self.control = "agent"
        self.recording: dict[str, Any] | None = None
        self.count = 0
        self.recordings: dict[str, dict[str, Any]] = {}
        self.log = []
        self.screens: set[Screen] = set()

    def state(self):
        return {
            "resolution": {"width": self.width, "height": self.height},
            "dpi": self.dpi,
            "control": self.control,
            "recording": self.recording,
            "viewers": len(self.screens),
        }

    def png(self):
        row = b"\0" + b"\x20\x60\xa0" * self.width
        parts = [
            (b"IHDR", struct.pack("!2I5B", self.width, self.height, 8, 2, 0, 0, 0)),
            (b"IDAT", zlib.compress(row * self.height, 1)),
            (b"IEND", b""),
        ]
        chunks = (
            struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
            for kind, data in parts
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)

    def answer(self, method, path, query, body):
        """Return status, and document or bytes."""
        name, *below = path.strip("/").split("/")
        if name == "recordings":
            return self.answer_recordings(method, below, query, body)
        answers = {
            "GET health": lambda: (200, {"ready": True}),
            "GET log": lambda: (200, {"log": self.log}),
            "GET state": lambda: (200, self.state()),
            "GET screenshot": lambda: (200, self.png()),
            "PUT display": lambda: self.resize(body),
            "PUT control": lambda: self.set_control(body),
            "POST actions": lambda: self.act(body),
        }
        return answers.get(f"{method} {name}", lambda: NOT_FOUND)()

    def answer_recordings(self, method, below, query, body):
        if not below:
            return self.record(body) if method == "POST" else (200, self.listed(query))
        if below == ["current"]:
            return self.stop()
        if below[0] not in self.recordings:
            return NOT_FOUND
        if method == "DELETE":
            del self.recordings[below[0]]
            return 204, b""
        if below[1:] == ["fragments"]:
            return 200, recorded()[int(query["offset"][0]) :]
        return NOT_FOUND

    def listed(self, query):
        found = list(self.recordings.values())
        return [
            each for each in found if "current" in query or each["end_reason"] != "not finished"
        ]

    def resize(self, body):
        self.width, self.height = body["width"], body["height"]
        self.dpi = body.get("dpi", self.dpi)
        return 200, self.state()

    def set_control(self, body):
        self.control = body["holder"]
        return 200, self.state()

    def record(self, body):
        self.count += 1
        name = f"rec_{self.count}"
        self.recording = {"id": name, "fps": body["fps"], "started_at": "2026-01-01T00:00:00Z"}
        made = {**self.recording, "width": self.width, "height": self.height}
        made |= {"bytes": 0, "duration_s": 0, "end_reason": "not finished"}
        self.recordings[name] = made
        return 201, self.recording

    def stop(self):
        if self.recording is None:
            return 409, {"detail": "No recording runs."}
        ended = {"id": self.recording["id"], "bytes": len(recorded()), "duration_s": 3.0}
        self.recordings[ended["id"]] |= {**ended, "end_reason": "stopped"}
        self.recording = None
        return 200, ended

    def act(self, body):
        if self.control == "person":
            return 409, {"detail": "A person has control of the desktop."}
        if point := body.get("coordinate"):
            if point[0] >= self.width or point[1] >= self.height:
                return 422, {"detail": f"The point {point} is outside the screen."}
            self.move(*point)
        result = {"cursor": self.cursor, "width": self.width, "height": self.height}
        if body["screenshot"] or body["action"] == "screenshot":
            result["screenshot"] = base64.b64encode(self.png()).decode()
        return 200, result

    def move(self, x, y):
        self.cursor = (x, y)
        for screen in self.screens:
            screen.is_changed.set()


def recorded():
    """Return as much of the film as has been recorded."""
    if not OWN_FILM.exists():
        return FILM
    size = OWN_FILM.with_suffix(".size")
    return OWN_FILM.read_bytes()[: int(size.read_text()) if size.exists() else None]


class Screen:
    """One viewer's RFB session over a WebSocket."""

    def __init__(self, desktop, reader, writer, *, may_control):
        self.desktop, self.reader, self.writer = desktop, reader, writer
        self.may_control = may_control
        self.received = bytearray()
        self.is_changed = asyncio.Event()

    async def serve(self):
        await self.send(b"RFB 003.008\n")
        await self.take(12)
        await self.send(b"\x01\x01")
        await self.take(1)
        await self.send(b"\0\0\0\0")
        await self.take(1)
        pixels = struct.pack("!4B3H3B3x", 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)
        name = b"desktop"
        head = struct.pack("!2H", self.desktop.width, self.desktop.height)
        await self.send(head + pixels + struct.pack("!I", len(name)) + name)
        updates = asyncio.create_task(self.send_updates())
        try:
            await self.receive_messages()
        finally:
            updates.cancel()

    async def receive_messages(self):
        while True:
            kind = (await self.take(1))[0]
            if kind == 2:
                _, count = struct.unpack("!BH", await self.take(3))
                await self.take(4 * count)
            elif kind == 6:
                _, length = struct.unpack("!3sI", await self.take(7))
                self.desktop.log.append({"clipboard": (await self.take(length)).decode("latin-1")})
            elif kind in SIZES:
                await self.take_input(kind, await self.take(SIZES[kind] - 1))
            else:
                return

    async def take_input(self, kind, data):
        if kind == 3:
            if not data[0]:
                self.is_changed.set()
            return
        if kind not in INPUT or not self.may_control:
            return
        if kind == 5:
            buttons, x, y = struct.unpack("!B2H", data)
            self.desktop.move(x, y)
            self.desktop.log.append({"pointer": [buttons, x, y]})
        else:
            down, _, key = struct.unpack("!BHI", data)
            self.desktop.log.append({"key": [down, key]})

    async def send_updates(self):
        while True:
            await self.is_changed.wait()
            self.is_changed.clear()
            width, height = self.desktop.width, self.desktop.height
            lines = [bytearray(b"\x20\x60\xa0\0" * width) for _ in range(height)]
            x, y = self.desktop.cursor
            for line in lines[y : y + 8]:
                line[4 * x : 4 * x + 32] = b"\xff" * len(line[4 * x : 4 * x + 32])
            head = struct.pack("!2BH4Hi", 0, 0, 1, 0, 0, width, height, 0)
            await self.send(head + b"".join(lines))

    async def send(self, data):
        head = bytes((0x82,))
        if len(data) < 126:
            head += bytes((len(data),))
        elif len(data) < 65536:
            head += struct.pack("!BH", 126, len(data))
        else:
            head += struct.pack("!BQ", 127, len(data))
        self.writer.write(head + data)
        await self.writer.drain()

    async def take(self, count):
        while len(self.received) < count:
            self.received += await self.read_frame()
        taken = bytes(self.received[:count])
        del self.received[:count]
        return taken

    async def read_frame(self):
        first, second = await self.reader.readexactly(2)
        length = second & 0x7F
        if length > 125:
            size = 2 if length == 126 else 8
            length = int.from_bytes(await self.reader.readexactly(size), "big")
        mask = await self.reader.readexactly(4)
        data = await self.reader.readexactly(length)
        plain = bytes(each ^ mask[at % 4] for at, each in enumerate(data))
        if first & 0xF == CLOSE:
            raise ConnectionError
        if first & 0xF == PING:
            self.writer.write(bytes((0x80 | PONG, len(plain))) + plain)
        return plain if first & 0xF < CLOSE else b""


async def serve(desktop, reader, writer):
    try:
        while await answer(desktop, reader, writer):
            pass
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def answer(desktop, reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split()
    named = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
    url = urlsplit(target)
    content = await reader.readexactly(int(named.get("content-length", 0)))
    if url.path != "/log" and named.get("authorization") != f"Bearer {token()}":
        await reply(writer, 401, {"detail": "Missing or wrong token."})
        return True
    query = parse_qs(url.query, keep_blank_values=True)
    if "upgrade" in named:
        await upgrade(desktop, reader, writer, named, query)
        return False
    body = json.loads(content) if content else None
    if url.path not in {"/log", "/state"}:
        desktop.log.append({"request": f"{method} {target}", "body": body})
    status, result = desktop.answer(method, url.path, query, body)
    await reply(writer, status, result, named.get("range"))
    return True


async def upgrade(desktop, reader, writer, named, query):
    key = hashlib.sha1(named["sec-websocket-key"].encode() + UUID).digest()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append(f"Sec-WebSocket-Accept: {base64.b64encode(key).decode()}")
    if "binary" in named.get("sec-websocket-protocol", ""):
        lines.append("Sec-WebSocket-Protocol: binary")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    screen = Screen(desktop, reader, writer, may_control=query["mode"] == ["control"])
    desktop.screens.add(screen)
    try:
        await screen.serve()
    finally:
        desktop.screens.discard(screen)


async def reply(writer, status, result, wanted=None):
    is_json = isinstance(result, dict | list)
    content = json.dumps(result).encode() if is_json else result
    extra = ""
    if wanted and not is_json and status == 200:
        begin, end = wanted.removeprefix("bytes=").split("-")
        last = int(end) if end else len(content) - 1
        status, extra = 206, f"Content-Range: bytes {begin}-{last}/{len(content)}\r\n"
        content = content[int(begin) : last + 1]
    kind = "application/json" if is_json else "application/octet-stream"
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
    writer.write(f"{head}{extra}\r\n".encode() + content)
    await writer.drain()


def token():
    try:
        return json.loads(SETTINGS.read_text())["token"]
    except OSError:
        return None


async def main(port):
    desktop = Desktop()
    server = await asyncio.start_server(
        lambda reader, writer: serve(desktop, reader, writer), "127.0.0.1", port, limit=2**20
    )
    await server.serve_forever()


asyncio.run(main(int(sys.argv[1])))
