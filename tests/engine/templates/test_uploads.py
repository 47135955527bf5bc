"""Files for COPY, as the SDKs send them and as somebody with a link and no key might."""

import hashlib
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.engine.engine_process import running_engine
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

UPLOADS = "templates/uploads"


@pytest.fixture(scope="module")
def engine():
    """Run an engine that takes small uploads only."""
    with running_engine("--upload-mb", "1") as engine:
        yield engine


@pytest.fixture
async def template_id(client, name):
    """Make a template that waits for files."""
    return (await client.post("/v3/templates", json={"name": name})).json()["templateID"]


@pytest.fixture
def digest(name):
    return hashlib.sha256(name.encode()).hexdigest()


@pytest.fixture
async def link(client, template_id, digest):
    """Get a link for an upload; whoever has it needs no key."""
    answer = await client.get(f"/templates/{template_id}/files/{digest}")
    assert answer.status_code == 201
    assert answer.json()["present"] is False
    return answer.json()["url"]


@pytest.fixture
def kept(engine, digest):
    return Path(engine.state_dir, UPLOADS, digest)


async def put(url, content, **headers):
    async with httpx.AsyncClient(timeout=60) as bare:
        return await bare.put(url, content=content, headers=headers)


async def test_build_upload__put_to_the_link_stores_the_files(
    client, template_id, digest, link, kept
):
    assert (await put(link, b"archive")).status_code == 200
    assert kept.read_bytes() == b"archive"
    answer = await client.get(f"/templates/{template_id}/files/{digest}")
    assert answer.json()["present"] is True
    # The SDK's force_upload sends them all the same.
    assert (await put(answer.json()["url"], b"again")).status_code == 200
    assert kept.read_bytes() == b"again"


async def test_build_upload__link_has_the_address_of_the_request(
    client, engine, template_id, digest
):
    path = f"/templates/{template_id}/files/{digest}"
    headers = {"Host": f"api.localhost:{engine.port}", "X-Forwarded-Proto": "https"}
    url = urlsplit((await client.get(path, headers=headers)).json()["url"])
    assert (url.scheme, url.netloc) == ("https", f"api.localhost:{engine.port}")


@pytest.mark.parametrize(
    ("part", "forged"),
    [
        ("signature=", "signature=0"),
        ("expires=", "expires=9"),
        ("/files/", "/files/00"),
        ("&signature", "&unsigned"),
        ("?expires", "?never"),
    ],
)
async def test_build_upload__link_allows_one_upload_only(link, part, forged, engine):
    assert (await put(link.replace(part, forged), b"x")).status_code in (400, 403)
    assert not list(Path(engine.state_dir, UPLOADS).glob("00*"))


async def test_build_upload__oversized_upload_is_rejected(link, kept, engine):
    async def endless():
        for _ in range(40):
            yield bytes(64 << 10)

    refused = await put(link, bytes((1 << 20) + 1))
    assert (refused.status_code, refused.json()["error_code"]) == (413, "upload_too_large")
    assert (await put(link, endless())).status_code == 413
    assert not kept.exists()
    assert not list(kept.parent.glob("*.part"))
    assert (await put(link, bytes(1 << 20))).status_code == 200


async def test_build_upload__aborted_upload_keeps_the_old_file(engine, link, kept):
    assert (await put(link, b"whole")).status_code == 200
    target = urlsplit(link)
    with socket.create_connection(("127.0.0.1", engine.port)) as half:
        head = (
            f"PUT {target.path}?{target.query} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        )
        half.sendall(head.encode() + b"part")

        async def begun() -> bool:
            return bool(list(kept.parent.glob("*.part")))

        await until(begun, timeout=60)

    async def gone() -> bool:
        return not list(kept.parent.glob("*.part"))

    await until(gone, timeout=60)
    assert kept.read_bytes() == b"whole"


@pytest.mark.parametrize("wrong", ["..%2F..%2Fapi.key", "ABC", "0" * 31, "0" * 129])
async def test_build_upload__invalid_hash_is_rejected(client, template_id, wrong):
    answer = await client.get(f"/templates/{template_id}/files/{wrong}")
    assert answer.status_code in (400, 404)


async def test_build_upload__missing_files_are_reported(client, template_id, name):
    answer = await client.post("/v3/templates", json={"name": name})
    path = f"/v2/templates/{template_id}/builds/{answer.json()['buildID']}"
    step = {"type": "COPY", "args": ["a", "/a", "", ""], "filesHash": "0" * 64}
    await client.post(path, json={"fromImage": "e2bdev/base", "steps": [step]})
    status = f"/templates/{template_id}/builds/{answer.json()['buildID']}/status"

    async def reason() -> dict[str, str]:
        told: dict[str, dict[str, str]] = (await client.get(status)).json()
        return told.get("reason", {})

    told = await until(reason, timeout=60)
    assert "0" * 64 in told["message"]
    assert told["step"] == "1"


@pytest.fixture(scope="module")
def crammed():
    """Run an engine whose disk counts as full, and that keeps no uploads."""
    with running_engine("--min-free-disk-mb", str(1 << 30), "--upload-days", "0") as engine:
        yield engine


async def test_build_upload__full_disk_rejects_an_upload(crammed, name):
    headers = {"X-API-Key": crammed.api_key}
    async with httpx.AsyncClient(base_url=crammed.url, headers=headers, timeout=60) as client:
        asked = (await client.post("/v3/templates", json={"name": name})).json()
        answer = await client.get(f"/templates/{asked['templateID']}/files/{'0' * 64}")
    refused = await put(answer.json()["url"], bytes(1 << 20))
    assert refused.json()["error_code"] == "machine_full"
    assert not list(Path(crammed.state_dir, UPLOADS).iterdir())


@pytest.mark.slow  # a crash needs an engine of its own
async def test_build_upload__unused_files_are_removed_at_start(crammed):
    uploads = Path(crammed.state_dir, UPLOADS)
    (uploads / ("0" * 64)).write_bytes(b"old")
    (uploads / "tmpx.part").write_bytes(b"unfinished")
    await crammed.restart()
    assert not list(uploads.iterdir())
