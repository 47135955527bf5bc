"""Who counts as a user of a volume, which is removed when it is deleted and has none."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from sandbox_engine.volumes.record import VolumeRecord
from sandbox_engine.volumes.volume import Volume


async def test_volume__is_in_use_while_it_is_being_mounted(tmp_path, monkeypatch):
    may_fail = asyncio.Event()

    async def fail_later(_work):
        await may_fail.wait()
        raise OSError("no such image")

    record = VolumeRecord(id="v", name="v", token="", size_mb=1, created_at=datetime.now(UTC))
    volume = Volume(record, tmp_path)
    monkeypatch.setattr(volume, "workers", SimpleNamespace(run=fail_later))
    acquiring = asyncio.create_task(volume.acquire("reader"))
    await asyncio.sleep(0)
    assert volume.is_used
    may_fail.set()
    with pytest.raises(OSError, match="no such image"):
        await acquiring
    assert not volume.is_used
