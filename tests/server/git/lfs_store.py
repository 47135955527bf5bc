"""The LFS server of a forge: the batch API, and a store that wants a credential of its own."""

import hashlib
import json
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

STORE_TOKEN = "token-of-the-store"
_OBJECTS = "/lfs-store/"
_JSON = {"Content-Type": "application/vnd.git-lfs+json"}

Answer = tuple[HTTPStatus, dict[str, str], bytes]


def oid_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pointer_of(content: bytes) -> str:
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid_of(content)}\n"
        f"size {len(content)}\n"
    )


@dataclass
class LfsStore:
    """Contents by their ids."""

    contents: dict[str, bytes] = field(default_factory=dict)
    batches: list[dict[str, Any]] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)
    cut_off: list[str] = field(default_factory=list)
    """Uploads whose connection ended before their content."""
    origin: str | None = None
    """Where contents are said to be, instead of here."""
    redirect_to: str | None = None
    """Origin to which downloads are redirected."""
    tokens: list[str | None] = field(default_factory=list)
    """The credentials with which contents were asked for."""

    def add(self, content: bytes) -> str:
        self.contents[oid_of(content)] = content
        return oid_of(content)

    def is_object(self, path: str) -> bool:
        return path.startswith(_OBJECTS)

    def answer(self, path: str, body: bytes, origin: str) -> Answer:
        asked = json.loads(body)
        if path.endswith("/verify"):
            is_there = len(self.contents.get(asked["oid"], b"")) == asked["size"]
            self.verified.append(asked["oid"])
            return HTTPStatus.OK if is_there else HTTPStatus.NOT_FOUND, _JSON, b"{}"
        self.batches.append(asked)
        objects = [self._object(asked["operation"], each, origin) for each in asked["objects"]]
        said = {"transfer": "basic", "objects": objects}
        return HTTPStatus.OK, _JSON, json.dumps(said).encode()

    def _object(self, operation: str, wanted: dict[str, Any], origin: str) -> dict[str, Any]:
        oid, is_there = wanted["oid"], wanted["oid"] in self.contents
        header = {"Authorization": f"Bearer {STORE_TOKEN}"}
        store = {"href": f"{self.origin or origin}{_OBJECTS}{oid}", "header": header}
        if operation == "upload" and not is_there:
            verify = {"href": f"{origin}{_OBJECTS}verify", "header": header}
            return {**wanted, "actions": {"upload": store, "verify": verify}}
        if operation == "download" and is_there:
            return {**wanted, "actions": {"download": store}}
        if operation == "upload":
            return wanted
        return {**wanted, "error": {"code": 404, "message": "Object does not exist"}}

    def transfer(self, method: str, path: str, headers: Message, body: bytes) -> Answer:
        oid = urlsplit(path).path.removeprefix(_OBJECTS)
        if method == "GET" and self.redirect_to is not None and "?" not in path:
            return HTTPStatus.FOUND, {"Location": f"{self.redirect_to}{path}?signed"}, b""
        self.tokens.append(headers.get("Authorization"))
        if "?" not in path and headers.get("Authorization") != f"Bearer {STORE_TOKEN}":
            return HTTPStatus.FORBIDDEN, {}, b""
        if method == "POST":
            return self.answer(path, body, "")
        if method == "GET":
            return HTTPStatus.OK, {}, self.contents[oid]
        if len(body) < int(headers["Content-Length"]):
            self.cut_off.append(oid)
            return HTTPStatus.BAD_REQUEST, {}, b""
        self.contents[oid] = body
        return HTTPStatus.OK, {}, b""
