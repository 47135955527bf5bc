from types import SimpleNamespace
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from sandbox_engine.envd.rpc_errors import FaultInterceptor

CONTEXT: Any = SimpleNamespace(method=SimpleNamespace(name="List"))


async def fail(_request, _context):
    raise RuntimeError("/host/path")


async def refuse(_request, _context):
    raise ConnectError(Code.NOT_FOUND, "process with pid 7 not found")


async def break_off(_request, _context):
    yield 1
    raise RuntimeError("/host/path")


async def test_rpc_errors__unexpected_error_has_a_fixed_text():
    with pytest.raises(ConnectError) as caught:
        await FaultInterceptor().intercept_unary(fail, None, CONTEXT)
    assert (caught.value.code, caught.value.message) == (Code.INTERNAL, "internal error")


async def test_rpc_errors__intended_error_is_passed_on():
    with pytest.raises(ConnectError, match="pid 7"):
        await FaultInterceptor().intercept_unary(refuse, None, CONTEXT)


async def test_rpc_errors__failed_stream_ends_with_a_fixed_text():
    messages = FaultInterceptor().intercept_server_stream(break_off, None, CONTEXT)
    assert await anext(messages) == 1
    with pytest.raises(ConnectError, match="internal error"):
        await anext(messages)
