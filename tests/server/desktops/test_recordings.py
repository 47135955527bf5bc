"""Recordings are copied from the sandbox while they grow, and outlive it."""

import asyncio
import io

import pytest
import pytest_asyncio
from PIL import Image

from sandbox_server.db.models import Sandbox
from sandbox_server.desktops.guest import DesktopGuest
from sandbox_server.desktops.recording_copies import RecordingCopies, RecordingLimits
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from tests.engine.polling import until
from tests.server.desktops.conftest import start_desktop
from tests.server.desktops.films import duration_of, make_film
from tests.server.support.databases import new_database
from tests.server.support.full_server import inside, serving_outside

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

SECONDS = 24
RECORDED = {"template": "base", "desktop": {"recording": {"fps": 5}}}
HOME = "/home/user"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(bundled_url, engine, tmp_path_factory):
    """Run a server that copies every second, and keeps a MiB."""
    state_dir = tmp_path_factory.mktemp("state")
    async with (
        new_database(bundled_url) as url,
        serving_outside(
            url, engine, state_dir=state_dir, recording_copy_s=1, recording_mb=1
        ) as outside,
    ):
        yield outside


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return make_film(tmp_path_factory.mktemp("films") / "film.mp4", seconds=SECONDS)


@pytest.fixture
def recorded(outside, make_sandbox, film, grow):
    """Make a sandbox whose desktop is recorded, with a film for that; returns its id."""

    async def make(*, size=None, content=film):
        sandbox_id = await make_sandbox(**RECORDED, with_desktop=False)
        sandbox = await inside(outside, sandbox_id)
        await sandbox.files.write(f"{HOME}/film.mp4", content)
        await grow(sandbox_id, len(content) if size is None else size)
        await start_desktop(outside, sandbox_id)
        return sandbox_id

    return make


@pytest.fixture
def grow(outside):
    """Have the file in the sandbox grow to a size."""

    async def grow(sandbox_id, size):
        sandbox = await inside(outside, sandbox_id)
        await sandbox.files.write(f"{HOME}/film.size", str(size))

    return grow


@pytest.fixture
def kept(api):
    """List the recordings of a sandbox."""

    async def listed(sandbox_id):
        answer = await api.get(f"/v1/sandboxes/{sandbox_id}/desktop/recordings")
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]

    return listed


def path(sandbox_id, rest=""):
    return f"/v1/sandboxes/{sandbox_id}/desktop/recordings{rest}"


async def colour_at(api, sandbox_id, name, at_s):
    answer = await api.get(path(sandbox_id, f"/{name}/frame"), params={"at_s": at_s})
    assert answer.status_code == 200, answer.text
    image = Image.open(io.BytesIO(answer.content)).convert("RGB").resize((1, 1))
    pixel = image.getpixel((0, 0))
    assert isinstance(pixel, tuple)
    red, green, _ = pixel
    return "red" if red > green else "green"


async def plays(api, sandbox_id, name, tmp_path):
    answer = await api.get(path(sandbox_id, f"/{name}"))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "video/mp4")
    (tmp_path / "film.mp4").write_bytes(answer.content)
    return await asyncio.to_thread(duration_of, tmp_path / "film.mp4")


async def test_recordings__are_listed_and_read_in_parts(api, sandbox_id, kept):
    recordings = path(sandbox_id)
    started = await api.post(recordings, json={"fps": 7})
    assert (started.status_code, started.json()["fps"]) == (201, 7), started.text
    [running] = await kept(sandbox_id)
    assert running["end_reason"] is None
    refused = await api.delete(f"{recordings}/{running['id']}")
    assert "goes on" in refused.json()["detail"]
    assert (await api.delete(f"{recordings}/current")).status_code == 204
    [made] = await kept(sandbox_id)
    assert (made["end_reason"], made["duration_s"]) == ("stopped", 3)
    name = made["id"]
    whole = (await api.get(f"{recordings}/{name}")).content
    for wanted, part in (("10-19", whole[10:20]), ("-7", whole[-7:]), ("30-", whole[30:])):
        answer = await api.get(f"{recordings}/{name}", headers={"Range": f"bytes={wanted}"})
        assert (answer.status_code, answer.content) == (206, part)
    beyond = await api.get(f"{recordings}/{name}", headers={"Range": f"bytes={len(whole)}-"})
    assert beyond.status_code == 416
    late = await api.get(f"{recordings}/{name}/frame", params={"at_s": 100})
    assert (late.status_code, "3.0 s long" in late.json()["detail"]) == (404, True)
    assert (await api.delete(f"{recordings}/{name}")).status_code == 204
    gone = await api.delete(f"{recordings}/{name}")
    assert (gone.status_code, gone.json()["code"]) == (404, "desktop-recording-not-found")


async def test_recordings__outlive_the_sandbox_that_is_deleted(api, recorded, kept, tmp_path):
    sandbox_id = await recorded()
    await until(lambda: kept(sandbox_id), timeout=30)
    deleted = await api.delete(f"/v1/sandboxes/{sandbox_id}", params={"wait": 30})
    assert deleted.status_code in {200, 202, 204}, deleted.text
    await until(lambda: is_in(api, sandbox_id, "stopped"), timeout=30)
    [made] = await kept(sandbox_id)
    assert (made["end_reason"], made["duration_s"]) == ("stopped", SECONDS)
    assert await plays(api, sandbox_id, made["id"], tmp_path) == pytest.approx(SECONDS, abs=0.1)
    colours = [await colour_at(api, sandbox_id, made["id"], at) for at in (0, 11.8, 12.1, 23.9)]
    assert colours == ["red", "red", "green", "green"]


async def test_recordings__of_a_sandbox_that_ends_abruptly_have_the_last_copy(
    outside, api, recorded, grow, kept, film, tmp_path
):
    sandbox_id = await recorded(size=len(film) // 2)
    [running] = await until(lambda: kept(sandbox_id), timeout=30)
    before = running["duration_s"]
    assert 0 < before < SECONDS
    await grow(sandbox_id, len(film) * 3 // 4)

    async def is_copied_without_a_request():
        answer = await api.get(
            path(sandbox_id, f"/{running['id']}/frame"), params={"at_s": before + 1}
        )
        return answer.status_code == 200

    await until(is_copied_without_a_request, timeout=30)
    await (await inside(outside, sandbox_id)).kill()
    await api.delete(f"/v1/sandboxes/{sandbox_id}")
    await until(lambda: is_in(api, sandbox_id, "stopped", "failed"), timeout=30)
    [made] = await kept(sandbox_id)
    assert made["end_reason"] == "the sandbox ended"
    assert before < made["duration_s"] < SECONDS
    assert await plays(api, sandbox_id, made["id"], tmp_path) == pytest.approx(
        made["duration_s"], abs=0.1
    )


async def test_recordings__go_on_after_a_pause_and_are_read_during_it(
    api, recorded, grow, kept, film
):
    sandbox_id = await recorded(size=len(film) // 2)
    await until(lambda: kept(sandbox_id), timeout=30)
    await api.post(f"/v1/sandboxes/{sandbox_id}/pause", params={"wait": 30})
    [paused] = await kept(sandbox_id)
    assert await is_in(api, sandbox_id, "paused")
    assert await colour_at(api, sandbox_id, paused["id"], 1) == "red"
    assert await is_in(api, sandbox_id, "paused")
    await api.post(f"/v1/sandboxes/{sandbox_id}/resume", params={"wait": 30})
    await grow(sandbox_id, len(film))
    assert (await api.delete(path(sandbox_id, "/current"))).status_code == 204
    [ended] = await kept(sandbox_id)
    assert ended["end_reason"] == "stopped"
    assert (ended["id"], ended["duration_s"]) == (paused["id"], SECONDS)


async def test_recordings__beyond_the_limit_the_oldest_is_deleted(api, recorded, kept, tmp_path):
    noise = "nullsrc=size=320x240:rate=5:duration=3,geq=random(1)*255:128:128"
    content = await asyncio.to_thread(make_film, tmp_path / "noise.mp4", source=noise)
    assert 2**19 < len(content) < 2**20
    sandbox_id = await recorded(content=content)
    [first] = await until(lambda: kept(sandbox_id), timeout=30)
    await api.delete(path(sandbox_id, "/current"))
    second = await api.post(path(sandbox_id), json={"fps": 5})
    names = [each["id"] for each in await kept(sandbox_id)]
    assert names == [second.json()["id"]] != [first["id"]]


async def test_recordings__that_are_no_film_end_with_a_reason(api, recorded, kept):
    sandbox_id = await recorded(content=b"\xff" * 1000)
    [made] = await until(lambda: kept(sandbox_id), timeout=30)
    assert made["end_reason"] == "The recording in the sandbox is not a fragmented MP4."
    assert (await api.get(path(sandbox_id, f"/{made['id']}"))).status_code == 404
    state = await api.get(f"/v1/sandboxes/{sandbox_id}/desktop")
    assert state.status_code == 200


async def test_recordings__two_servers_copy_each_part_once(outside, recorded, grow, kept, film):
    sandbox_id = await recorded(size=0)
    await until(lambda: kept(sandbox_id), timeout=30)
    components = outside.components
    guest = DesktopGuest(
        ServiceConfigWriter(components.sessions, components.backends, components.vault)
    )
    copies = [
        RecordingCopies(
            components.sessions,
            components.vault,
            guest,
            RecordingLimits(most_bytes=2**30),
        )
        for _ in range(4)
    ]
    async with components.sessions() as session:
        row = await session.get_one(Sandbox, sandbox_id)
    used = components.controller.reach_into(row)
    for size in range(0, len(film) + 5000, 5000):
        await grow(sandbox_id, size)
        await asyncio.gather(*(each.copy(used) for each in copies))
    [made] = await kept(sandbox_id)
    assert made["duration_s"] == SECONDS


async def is_in(api, sandbox_id, *states):
    return (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()["state"] in states
