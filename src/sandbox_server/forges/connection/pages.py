"""Lists of forges, which come in pages."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from sandbox_server.domain.tasks.forges import Validated
from sandbox_server.forges.connection.answers import Answer
from sandbox_server.forges.connection.client import Call, ForgeAddress, origin_of

T = TypeVar("T")


class _Dated(Protocol):
    @property
    def at(self) -> datetime: ...


D = TypeVar("D", bound=_Dated)


@dataclass(frozen=True, kw_only=True)
class Pages(Generic[T]):
    """A list, as far as it was read."""

    items: list[T] | None
    """None: unchanged since the validator that was sent."""
    validator: str | None
    """None if the list has several pages: the first one does not change when an item is added to another."""
    is_cut: bool = False
    """There are more pages than were read."""

    def validated(
        self, found: Sequence[D | None], since: datetime, *, is_sorted: bool = False
    ) -> Validated[tuple[D, ...]]:
        """Select what happened since an instant of what was made of the items.

        What is left of a list that is cut can be found only if the list is sorted, oldest first.
        """
        if self.items is None:
            return Validated(value=None, validator=self.validator)
        dated = [each for each in found if each is not None]
        is_unfinished = self.is_cut and is_sorted and dated and dated[-1].at > since
        return Validated(
            value=tuple(each for each in dated if each.at >= since),
            validator=self.validator,
            read_until=dated[-1].at if is_unfinished else None,
        )


async def read_pages(
    send: Callable[[Call], Awaitable[Answer]],
    call: Call,
    address: ForgeAddress,
    model: type[T],
    *,
    most: int,
    is_last: Callable[[T], bool] = lambda _: False,
) -> Pages[T]:
    """Read a list page by page, up to one with an item that is the last one wanted.

    Only the request for the first page has the validator.
    """
    answer = await send(call)
    if answer.is_unchanged:
        return Pages(items=None, validator=call.validator)
    validator = answer.validator
    items: list[T] = []
    for number in range(1, most + 1):
        page = answer.read(list[model])  # type: ignore[valid-type]
        items += page
        following = next_page(answer, address)
        if following is None or any(is_last(item) for item in page):
            return Pages(items=items, validator=validator if number == 1 else None)
        if number < most:
            answer = await send(replace(call, path=following, params={}, validator=None))
    return Pages(items=items, validator=None, is_cut=True)


def next_page(answer: Answer, address: ForgeAddress) -> str | None:
    """Find the next page in the `Link` header, if it is at the forge itself."""
    for link in answer.headers.get("link", "").split(","):
        url, _, relation = link.partition(";")
        if 'rel="next"' in relation:
            page = url.strip().strip("<>")
            return page if origin_of(page) == origin_of(address.api_url) else None
    return None
