"""Lets the tests of the asynchronous client use the synchronous one: each call runs in a thread."""

import asyncio
import inspect
from typing import Any

_OVER = object()


class SyncInThread:
    """Wraps an object of the synchronous client in the interface of the asynchronous one."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if not inspect.ismethod(found):
            return _wrapped(found)
        return lambda *args, **options: _Pending(found, args, options)

    def as_user(self, user):
        return SyncInThread(self._inner.as_user(user))

    def __aiter__(self):
        return _Pending(lambda: self._inner, (), {})

    async def __aenter__(self):
        await asyncio.to_thread(self._inner.__enter__)
        return self

    async def __aexit__(self, *error):
        await asyncio.to_thread(self._inner.__exit__, *error)


class _Pending:
    """A call to come: awaited it gives what it gives, iterated what that has in it."""

    def __init__(self, method, args, options):
        self._call = lambda: method(*args, **options)
        self._iterator: Any = None

    def __await__(self):
        return self._result().__await__()

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._iterator is None:
            self._iterator = await asyncio.to_thread(lambda: iter(self._call()))
        item = await asyncio.to_thread(next, self._iterator, _OVER)
        if item is _OVER:
            raise StopAsyncIteration
        return _wrapped(item)

    async def aclose(self):
        if self._iterator is not None:
            await asyncio.to_thread(self._iterator.close)

    async def _result(self):
        return _wrapped(await asyncio.to_thread(self._call))


def _wrapped(value):
    is_ours = type(value).__module__.startswith("sandbox_client._sync")
    return SyncInThread(value) if is_ours else value
