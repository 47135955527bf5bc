"""Sandboxes of one test among those of all tests at the shared engine."""

import secrets

from e2b import AsyncSandbox, SandboxQuery


def new_mark():
    return {"test": secrets.token_hex(8)}


async def list_marked(mark, options):
    return await AsyncSandbox.list(query=SandboxQuery(metadata=mark), **options).next_items()
