import asyncio
import contextlib
import ssl
from functools import partial

import httpx
import pytest

from sandbox_engine.http.local_authority import LocalAuthority
from sandbox_engine.http.local_tls import HttpOrTls
from sandbox_engine.http.server import listen, serve, serving_tls
from tests.engine.http.test_server_limits import Streaming, hello

NAME = "6080-sandbox.localhost"


@pytest.fixture
def authority(tmp_path):
    authority = LocalAuthority(tmp_path / "tls")
    authority.create_if_missing()
    return authority


@contextlib.asynccontextmanager
async def serving_both(app, authority):
    """Serve on one port, as the engine does; tells the port."""
    [listener] = listen("127.0.0.1", 0)
    started = asyncio.Event()

    async def nothing():
        pass

    async with serving_tls(app, authority.server_context()) as address:
        protocol = partial(HttpOrTls, tls_address=address)
        task = asyncio.create_task(
            serve(app, [listener], on_started=started.set, on_stopping=nothing, protocol=protocol)
        )
        await started.wait()
        try:
            yield listener.getsockname()[1]
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def trusting(authority):
    return httpx.AsyncClient(verify=ssl.create_default_context(cafile=authority.certificate))


def named(name):
    """Ask for a name that need not resolve."""
    return {"headers": {"Host": name}, "extensions": {"sni_hostname": name}}


async def test_one_port_serves_http_and_https_with_a_certificate_of_each_name(authority):
    async with serving_both(hello, authority) as port, trusting(authority) as client:
        assert (await client.get(f"http://127.0.0.1:{port}")).text == "hello"
        for name in (NAME, "localhost", "A.B.LOCALHOST"):
            answer = await client.get(f"https://127.0.0.1:{port}", **named(name))
            assert answer.text == "hello"


async def test_much_passes_both_ways(authority):
    sent = bytes(range(256)) * (32 << 10)
    async with serving_both(hello, authority) as port, trusting(authority) as client:
        url = f"https://127.0.0.1:{port}"
        answers = await asyncio.gather(
            *(client.post(url, content=sent, timeout=60, **named(NAME)) for _ in range(3))
        )
    assert all(answer.content == sent for answer in answers)


async def test_a_client_that_leaves_ends_its_request(authority):
    app = Streaming()
    async with serving_both(app, authority) as port, trusting(authority) as client:
        url = f"https://127.0.0.1:{port}/endless"
        async with client.stream("GET", url, **named(NAME)) as answer:
            async for _ in answer.aiter_raw():
                break
        assert await asyncio.wait_for(app.left.get(), 30) == "/endless"


@pytest.mark.parametrize("name", ["example.com", "localhost.example.com", "notlocalhost"])
async def test_no_certificate_is_made_for_names_elsewhere(authority, name):
    async with serving_both(hello, authority) as port, trusting(authority) as client:
        with pytest.raises(httpx.ConnectError, match="Hostname mismatch"):
            await client.get(f"https://127.0.0.1:{port}", **named(name))


async def test_only_those_who_trust_the_authority_accept_its_certificates(authority):
    async with serving_both(hello, authority) as port, httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            await client.get(f"https://127.0.0.1:{port}", **named(NAME))


async def test_noise_after_the_first_byte_harms_nobody(authority):
    async with serving_both(hello, authority) as port, trusting(authority) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16" + b"\xff" * 1000)
        with contextlib.suppress(OSError):
            await asyncio.wait_for(reader.read(), 30)
        writer.close()
        answer = await client.get(f"https://127.0.0.1:{port}", **named(NAME))
        assert answer.text == "hello"


def test_the_authority_is_kept_and_its_key_private(authority):
    content = authority.certificate.read_bytes()
    authority.create_if_missing()
    assert authority.certificate.read_bytes() == content
    key = authority.certificate.with_name("ca-key.pem")
    assert key.stat().st_mode & 0o777 == 0o600
    assert authority.certificate.stat().st_mode & 0o777 == 0o644
