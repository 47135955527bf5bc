"""Layers, made at most once and kept for as long as somebody needs them."""

import asyncio
import threading

import pytest

from sandbox_engine.images.store import ImageStore
from sandbox_engine.rootfs.ownership import UID_BASE

pytestmark = pytest.mark.needs_engine

DEPTH = 1100  # beyond what Python recurses


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path / "images", owner=tmp_path)


@pytest.fixture
def neighbour(tmp_path):
    """Share the directory with another engine."""
    other = tmp_path / "other"
    other.mkdir()
    return ImageStore(tmp_path / "images", owner=other)


def write(text):
    return lambda tree: (tree / "file").write_text(text) and None


def unfinished(store):
    return list((store.directory / "building").iterdir())


async def test_image_store__layer_exists_once_complete(store):
    assert store.find_layer("one") is None
    layer = await store.add_layer("one", write("first"))
    assert store.find_layer("one") == layer
    assert (layer / "file").read_text() == "first"
    assert layer.stat().st_uid == UID_BASE
    assert not unfinished(store)


async def test_image_store__existing_layer_is_returned(store, neighbour):
    first = await store.add_layer("one", write("first"))
    assert await neighbour.add_layer("one", write("second")) == first
    assert (first / "file").read_text() == "first"


async def test_image_store__concurrent_requests_make_a_layer_once(store, neighbour):
    made, started, may_go_on = [], threading.Event(), threading.Event()

    def fill(tree):
        made.append(tree)
        started.set()
        may_go_on.wait(60)

    waiting = [asyncio.create_task(one.add_layer("one", fill)) for one in (store, neighbour, store)]
    await asyncio.to_thread(started.wait, 60)
    may_go_on.set()
    layers = await asyncio.gather(*waiting)
    assert len(made) == 1
    assert len(set(layers)) == 1


async def test_image_store__different_layers_do_not_wait_for_each_other(store):
    may_go_on = threading.Event()
    slow = asyncio.create_task(store.add_layer("slow", lambda _: may_go_on.wait(60) and None))
    async with asyncio.timeout(30):
        await store.add_layer("quick", write(""))
    assert not slow.done()
    may_go_on.set()
    await slow


async def test_image_store__failed_fill_leaves_nothing(store):
    def fail(tree):
        (tree / "half").write_text("")
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await store.add_layer("one", fail)
    assert store.find_layer("one") is None
    assert not unfinished(store)
    assert await store.add_layer("one", write("")) == store.find_layer("one")


async def test_image_store__cancelled_fill_ends_before_cleanup(store):
    started, may_go_on = threading.Event(), threading.Event()
    ended = []

    def fill(tree):
        started.set()
        may_go_on.wait(60)
        (tree / "late").write_text("")
        ended.append(tree)

    adding = asyncio.create_task(store.add_layer("one", fill))
    await asyncio.to_thread(started.wait, 60)
    adding.cancel()
    done, _ = await asyncio.wait([adding], timeout=0.3)
    assert not done  # it waits for its thread
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert ended
    assert store.find_layer("one") is None
    assert not unfinished(store)


async def test_image_store__cleanup_keeps_directories_in_use(store, neighbour):
    started, may_go_on = threading.Event(), threading.Event()

    def fill(tree):
        started.set()
        may_go_on.wait(60)
        (tree / "file").write_text("whole")

    adding = asyncio.create_task(store.add_layer("one", fill))
    await asyncio.to_thread(started.wait, 60)
    await neighbour.remove_unused(list)
    may_go_on.set()
    assert ((await adding) / "file").read_text() == "whole"


async def test_image_store__cleanup_removes_abandoned_directories(store):
    for depth in range(DEPTH):
        (store.directory / "building/left" / ("d/" * depth)).mkdir()
    await store.remove_unused(list)
    assert not unfinished(store)


async def test_image_store__held_layer_survives_cleanup(store):
    layer = await store.add_layer("one", write(""))
    with store.hold("one"):
        await store.remove_unused(list)
        assert layer.exists()
    await store.remove_unused(list)
    assert not layer.exists()


async def test_image_store__claimed_layer_survives_cleanup_by_another_engine(store, neighbour):
    layer = await store.add_layer("one", write(""))
    assert await neighbour.claim(["one"])
    assert not await neighbour.claim(["one", "two"])
    await store.remove_unused(list)
    assert layer.exists()
    await neighbour.remove_unused(list)
    assert not layer.exists()
