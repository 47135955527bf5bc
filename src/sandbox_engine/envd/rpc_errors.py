from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from sandbox_engine.system.log import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from connectrpc.request import RequestContext

log = get_logger(__name__)

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class FaultInterceptor:
    """Answers unexpected errors with a fixed text: exceptions may contain details of the host."""

    async def intercept_unary(
        self,
        call_next: Callable[[Asked, RequestContext[Any, Any]], Awaitable[Answer]],
        request: Asked,
        ctx: RequestContext[Any, Any],
        /,
    ) -> Answer:
        with _fixed_text(ctx):
            return await call_next(request, ctx)

    async def intercept_client_stream(
        self,
        call_next: Callable[[AsyncIterator[Asked], RequestContext[Any, Any]], Awaitable[Answer]],
        request: AsyncIterator[Asked],
        ctx: RequestContext[Any, Any],
        /,
    ) -> Answer:
        with _fixed_text(ctx):
            return await call_next(request, ctx)

    async def intercept_server_stream(
        self,
        call_next: Callable[[Asked, RequestContext[Any, Any]], AsyncIterator[Answer]],
        request: Asked,
        ctx: RequestContext[Any, Any],
        /,
    ) -> AsyncIterator[Answer]:
        answers = cast("AsyncGenerator[Answer]", call_next(request, ctx))
        async with aclosing(answers):
            with _fixed_text(ctx):
                async for answer in answers:
                    yield answer


@contextmanager
def _fixed_text(ctx: RequestContext[Any, Any]) -> Iterator[None]:
    try:
        yield
    except ConnectError:
        raise
    except Exception as error:
        log.exception("unexpected error in a call", method=ctx.method.name)
        raise ConnectError(Code.INTERNAL, "internal error") from error
