import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

from sandbox_server.git.lfs.protocol import LfsObject


class WrongContent(Exception):
    """The content sent does not match its SHA-256 name."""


async def verified(parts: AsyncIterator[bytes], wanted: LfsObject) -> AsyncGenerator[bytes, None]:
    """Pass a content on, its last part only when all of it is what its name says."""
    digest, left, held = hashlib.sha256(), wanted.size, b""
    async for part in parts:
        left -= len(part)
        if left < 0:
            break
        digest.update(part)
        if held:
            yield held
        held = part
    if left or digest.hexdigest() != wanted.oid:
        raise WrongContent(f"the content is not that of {wanted.oid}")
    if held:
        yield held
