"""Bases from a real registry."""

import asyncio
import stat
from functools import partial

import pytest

from sandbox_engine.images.credentials import RegistryCredentials
from sandbox_engine.images.registry.manifests import this_platform
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system.errors import ImageRefused, RegistryRefused, RegistryUnreachable
from tests.engine.images.base_images import bases_in
from tests.engine.images.local_registry import (
    LOGIN,
    Layer,
    make_image,
    needs_registry,
    running_registry,
    shell,
)

pytestmark = [pytest.mark.needs_engine, needs_registry, pytest.mark.timeout(300)]

ALICE = RegistryCredentials(*LOGIN.split(":"))


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """Make a small image."""

    def files(layer):
        shell(layer)
        layer.file("data", b"first", owner=5)

    def changes(layer):
        layer.file("data", b"second", owner=5)
        layer.file("setuid", mode=0o4755)
        layer.file("far", owner=100_000)
        layer.file("bin/.wh.sleep")

    settings = ("--config.env=GREETING=hello", "--config.user=5", "--config.workingdir=/srv")
    return make_image(tmp_path_factory.mktemp("image"), files, changes, settings=settings)


@pytest.fixture(scope="module")
def reference(registry, layout):
    return registry.push(layout, "small:1")


async def test_registry__image_becomes_one_layer_with_owners_and_modes(bases, reference, said):
    image = await bases.provide(reference, report=said.append)
    files = image.layers[0]
    assert (files / "data").read_bytes() == b"second"
    assert (files / "data").stat().st_uid == UID_BASE + 5
    assert stat.S_IMODE((files / "setuid").stat().st_mode) == 0o4755
    assert not (files / "bin/sleep").is_symlink()
    assert (files / "far").stat().st_uid == UID_BASE + 65534
    assert any("fetching" in line for line in said)


async def test_registry__environment_is_kept_but_not_user_and_directory(bases, reference):
    image = await bases.provide(reference, report=print)
    assert image.env["GREETING"] == "hello"
    assert (image.user, image.workdir) == ("user", "")  # as E2B builds it


async def test_registry__unchanged_image_is_not_fetched_again(bases, reference, said):
    first = await bases.provide(reference, report=print)
    inode = first.layers[0].stat().st_ino
    assert await bases.provide(reference, report=said.append) == first
    assert first.layers[0].stat().st_ino == inode
    assert said == []


async def test_registry__moved_tag_returns_the_new_image(bases, registry, layout, tmp_path):
    moving = registry.push(layout, "moving:1")
    first = await bases.provide(moving, report=print)
    changed = make_image(tmp_path, shell, lambda layer: layer.file("new"))
    registry.push(changed, "moving:1")
    second = await bases.provide(moving, report=print)
    assert (second.layers[0] / "new").exists()
    assert not (first.layers[0] / "new").exists()


@pytest.mark.parametrize("form", ["--dest-compress-format=zstd", "--format=v2s2"])
async def test_registry__other_image_formats_are_unpacked(bases, registry, layout, form):
    reference = registry.push(layout, "small:other", form)
    image = await bases.provide(reference, report=print)
    assert (image.layers[0] / "data").read_bytes() == b"second"


async def test_registry__platform_of_this_machine_is_selected(bases, registry, tmp_path):
    for name in ("ours", "theirs"):
        marked = make_image(tmp_path, shell, partial(Layer.file, name=name))
        registry.push(marked, f"several:{name}")
    variants = {"linux/s390x": "theirs", this_platform(): "ours", "windows/amd64": "theirs"}
    reference = registry.push_index("several", variants=variants)
    image = await bases.provide(reference, report=print)
    assert (image.layers[0] / "ours").exists()
    del variants[this_platform()]
    with pytest.raises(ImageRefused, match="only for: linux/s390x, windows/amd64"):
        await bases.provide(registry.push_index("several", variants=variants), report=print)


async def test_registry__digest_selects_one_image(bases, registry, layout, reference, tmp_path):
    registry.push(layout, "exact:1")
    exact = f"{registry.address}/exact@{registry.digest('exact', '1')}"
    registry.push(make_image(tmp_path, shell), "exact:1")
    image = await bases.provide(exact, report=print)
    assert (image.layers[0] / "data").read_bytes() == b"second"


async def test_registry__concurrent_builds_share_the_image(tmp_path, registry, reference):
    engines = [bases_in(tmp_path, insecure=registry.address) for _ in range(3)]
    images = await asyncio.gather(*(bases.provide(reference, report=print) for bases in engines))
    assert images == [images[0]] * 3
    assert not list((tmp_path / "building").iterdir())


async def test_registry__password_grants_access(tmp_path, locked_registry, layout):
    reference = locked_registry.push(layout, "small")
    bases = bases_in(tmp_path, insecure=locked_registry.address)
    with pytest.raises(RegistryRefused, match="authentication required"):
        await bases.provide(reference, report=print)
    image = await bases.provide(reference, credentials=ALICE, report=print)
    assert (image.layers[0] / "data").exists()
    with pytest.raises(RegistryRefused):  # also when it is here already
        await bases.provide(reference, report=print)


async def test_registry__wrong_password_is_rejected_and_not_retried(
    tmp_path, locked_registry, layout
):
    reference = locked_registry.push(layout, "small")
    bases = bases_in(tmp_path, insecure=locked_registry.address)
    wrong = RegistryCredentials("alice", "hunter2")
    with pytest.raises(RegistryRefused) as refusal:
        await bases.provide(reference, credentials=wrong, report=print)
    assert "hunter2" not in str(refusal.value) + repr(wrong)


async def test_registry__missing_image_is_reported(bases, registry):
    with pytest.raises(RegistryRefused, match="manifest unknown"):
        await bases.provide(f"{registry.address}/none", report=print)


async def test_registry__unreachable_registry_falls_back_to_the_cache(tmp_path, layout, said):
    with running_registry() as registry:
        reference = registry.push(layout, "small:1")
        bases = bases_in(tmp_path, insecure=registry.address)
        first = await bases.provide(reference, report=print)
    assert await bases.provide(reference, report=said.append) == first
    assert any("using the cached image" in line for line in said)
    with pytest.raises(RegistryUnreachable, match="connection refused"):
        await bases.provide(f"{reference}2", report=print)


async def test_registry__private_image_requires_the_registry(tmp_path, layout):
    with running_registry(login=LOGIN) as registry:
        reference = registry.push(layout, "small:1")
        bases = bases_in(tmp_path, insecure=registry.address)
        await bases.provide(reference, credentials=ALICE, report=print)
    for credentials in (ALICE, None):
        with pytest.raises(RegistryUnreachable):
            await bases.provide(reference, credentials=credentials, report=print)


async def test_registry__plain_http_requires_the_setting(tmp_path, reference):
    with pytest.raises(RegistryUnreachable, match="HTTP response to HTTPS client"):
        await bases_in(tmp_path).provide(reference, report=print)
