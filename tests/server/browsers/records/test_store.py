import pytest
from sqlalchemy import delete, func, select

from sandbox_server.browsers.records.store import RecordKind
from sandbox_server.db.models import BrowserRecord, BrowserSession

KIB = 1024


@pytest.fixture
def limits():
    return {RecordKind.MESSAGES: 10 * KIB, RecordKind.ENTRIES: 0, RecordKind.FRAMES: 10 * KIB}


async def append(store, row, content, kind=RecordKind.MESSAGES, **fields):
    await store.append(row.id, kind, content, first_ms=1, last_ms=2, **fields)


async def test_store__keeps_the_beginning_and_the_end_of_too_much(store, row):
    for number in range(40):
        await append(store, row, b"%02d" % number + bytes(KIB))
    kept = [int(each.content[:2]) for each in await store.list_after(row.id, RecordKind.MESSAGES)]
    assert len(kept) <= 11
    assert (kept[0], kept[-1]) == (0, 39)
    assert kept[:4] == [0, 1, 2, 3]
    assert kept[-4:] == [36, 37, 38, 39]
    assert store.keeps(RecordKind.FRAMES)
    assert not store.keeps(RecordKind.ENTRIES)


async def test_store__content_is_encrypted_and_removed_with_its_session(sessions, store, row):
    await append(store, row, b"a password")
    async with sessions.begin() as session:
        [part] = (await session.scalars(select(BrowserRecord))).all()
        assert b"password" not in part.content_sealed
        await session.execute(delete(BrowserSession).where(BrowserSession.id == row.id))
        assert await session.scalar(select(func.count()).select_from(BrowserRecord)) == 0


async def test_store__pages_are_numbered_as_they_appear(store, row):
    assert [await store.number_page(row.id, each) for each in ("a", "b", "a")] == [0, 1, 0]
    await append(store, row, b"{}", RecordKind.FRAMES, page=1)
    [span] = await store.list_spans(row.id)
    assert (span.page, span.first_ms, span.last_ms) == (1, 1, 2)
