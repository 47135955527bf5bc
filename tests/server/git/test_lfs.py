"""Transfers with LFS servers of forges: where contents may be, and which credential goes where."""

import os

import pytest

from sandbox_server.domain.errors import RemoteRefused
from sandbox_server.git.lfs.addresses import AddressCheck
from sandbox_server.git.lfs.contents import WrongContent
from sandbox_server.git.lfs.protocol import LfsObject
from sandbox_server.git.lfs.server import LfsServer
from tests.server.git.conftest import NAME
from tests.server.git.lfs_store import STORE_TOKEN, oid_of

CONTENT = os.urandom(200_000)
WANTED = LfsObject(oid=oid_of(CONTENT), size=len(CONTENT))
FORGE = "https://git.example.org/acme/widgets.git"


def resolving(*addresses):
    async def resolve(_host, _port):
        return addresses

    return resolve


async def download(server, credential, wanted=WANTED):
    async with server.download(credential, wanted) as parts:
        return b"".join([part async for part in parts])


async def in_parts(content):
    for start in range(0, len(content), 10_000):
        yield content[start : start + 10_000]


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
        *("::1", "fe80::1", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"),
    ],
)
async def test_address__of_this_machine_or_network_is_refused(address):
    check = AddressCheck(resolve=resolving("93.184.216.34", address))
    with pytest.raises(RemoteRefused, match="not an address of the internet"):
        await check.check("https://store.example.org/x", forge=FORGE)


@pytest.mark.parametrize(
    "url",
    [
        *("http://store.example.org/x", "ftp://store.example.org/x", "file:///etc/passwd"),
        *("https://user@store.example.org/x", "https://[", "https://a:port/x", "//store/x"),
    ],
)
async def test_address__only_https_when_the_forge_has_it(url):
    check = AddressCheck(resolve=resolving("93.184.216.34"))
    with pytest.raises(RemoteRefused):
        await check.check(url, forge=FORGE)


async def test_address__the_one_that_was_checked_is_connected_to():
    check = AddressCheck(resolve=resolving("2606:2800:220:1::1"))
    target = await check.check("https://store.example.org:8443/x?sig=1", forge=FORGE)
    assert target.url == "https://[2606:2800:220:1::1]:8443/x?sig=1"
    assert target.headers == {"Host": "store.example.org:8443"}
    assert target.extensions == {"sni_hostname": "store.example.org"}
    own = await check.check("https://git.example.org/x", forge=FORGE)
    assert own.url == "https://git.example.org/x"


async def test_download__a_redirection_to_another_host_carries_no_credential(forge, seeded):
    check = AddressCheck(resolve=resolving("127.0.0.1"), is_allowed=lambda _: True)
    forge.lfs.add(CONTENT)
    forge.lfs.redirect_to = f"http://store.example.org:{forge.port}"
    assert await download(LfsServer(check), forge.credential(NAME)) == CONTENT
    assert forge.lfs.tokens == [None]
    forge.lfs.redirect_to = f"http://127.0.0.1:{forge.port}"
    assert await download(LfsServer(check), forge.credential(NAME)) == CONTENT
    assert forge.lfs.tokens == [None, f"Bearer {STORE_TOKEN}"]


async def test_upload__is_complete_only_with_the_right_content(forge, seeded):
    server, credential = LfsServer(), forge.credential(NAME)
    with pytest.raises(WrongContent):
        await server.upload(credential, WANTED, in_parts(CONTENT[:-1] + b"x"))
    with pytest.raises(WrongContent):
        await server.upload(credential, WANTED, in_parts(CONTENT[:-1]))
    assert not forge.lfs.contents
    await server.upload(credential, WANTED, in_parts(CONTENT))
    assert forge.lfs.contents == {WANTED.oid: CONTENT}
    assert forge.lfs.verified == [WANTED.oid]
