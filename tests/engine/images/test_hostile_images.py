"""What an image may try against the machine that unpacks it."""

import os
import stat
import tarfile

import pytest

from sandbox_engine.rootfs.ownership import ID_COUNT, UID_BASE
from sandbox_engine.system.errors import ImageRefused
from tests.engine.images.base_images import bases_in
from tests.engine.images.local_registry import (
    make_image,
    needs_registry,
    reconfigure,
    shell,
)

pytestmark = [pytest.mark.needs_engine, needs_registry, pytest.mark.timeout(300)]

DEPTH = 1100  # beyond what Python recurses


@pytest.fixture
def outside(tmp_path):
    """Make a directory of the host's that an image has no business in."""
    outside = tmp_path / "outside"
    (outside / "etc").mkdir(parents=True)
    (outside / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    return outside


@pytest.fixture
def untouched(outside):
    """Check at the end that nothing was changed there."""
    before = contents(outside)
    yield
    assert contents(outside) == before


def contents(directory):
    paths = (directory, *directory.rglob("*"))
    return {path: (identity(path), path.read_bytes() if path.is_file() else b"") for path in paths}


def identity(path):
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns


def escape_by_name(layer, outside):
    layer.file(f"../../../../../../../..{outside}/up")
    layer.file(f"{outside}/absolute")


def escape_by_link(layer, outside):
    layer.symlink("way", str(outside))
    layer.file("way/through")
    layer.file("way/etc/passwd", b"mine")
    layer.symlink("up", "../" * 20 + str(outside)[1:])
    layer.directory("up/new")


def escape_by_hardlink(layer, outside):
    layer.symlink("etc", f"{outside}/etc")
    layer.hardlink("stolen", f"{outside}/etc/passwd")
    layer.hardlink("stolen-too", "etc/passwd")
    layer.file("stolen", b"mine")


def escape_by_whiteout(layer, outside):
    layer.symlink("way", str(outside))
    layer.file("way/etc/.wh.passwd")
    layer.file("way/.wh..wh..opq")
    layer.file(f"../../../../../../../..{outside}/.wh.etc")


@pytest.mark.parametrize(
    "escape", [escape_by_name, escape_by_link, escape_by_hardlink, escape_by_whiteout]
)
@pytest.mark.usefixtures("untouched")
async def test_hostile_image__layer_entries_cannot_escape(
    bases, registry, outside, tmp_path, escape
):
    def fill(layer):
        shell(layer)
        escape(layer, outside)

    reference = registry.push(make_image(tmp_path, fill), escape.__name__)
    try:
        image = await bases.provide(reference, report=print)
    except ImageRefused:
        return
    for layer in image.layers:
        assert not [path for path in layer.rglob("*") if not path.is_symlink() and is_foreign(path)]


def is_foreign(path):
    status = path.lstat()
    return not (
        0 <= status.st_uid - UID_BASE < ID_COUNT and 0 <= status.st_gid - UID_BASE < ID_COUNT
    )


@pytest.mark.usefixtures("untouched")
async def test_hostile_image__added_files_follow_no_links(bases, registry, outside, tmp_path):
    def fill(layer):
        shell(layer)
        for name in ("etc", "home", "tmp", "root", "usr", "var"):
            layer.symlink(name, f"{outside}/etc" if name == "etc" else str(outside))

    reference = registry.push(make_image(tmp_path, fill), "links")
    image = await bases.provide(reference, report=print)
    assert "user:x:1000:" in (image.layers[1] / "etc/passwd").read_text()
    assert not (image.layers[1] / "etc").is_symlink()


@pytest.mark.usefixtures("untouched")
async def test_hostile_image__linked_files_are_replaced(bases, registry, outside, tmp_path):
    def fill(layer):
        shell(layer)
        layer.directory("etc/ssl/certs")
        for name in ("passwd", "group", "shadow", "ssl/certs/ca-certificates.crt", "sudoers.d"):
            layer.symlink(f"etc/{name}", f"{outside}/etc/passwd")

    reference = registry.push(make_image(tmp_path, fill), "file-links")
    image = await bases.provide(reference, report=print)
    assert not (image.layers[1] / "etc/passwd").is_symlink()


async def test_hostile_image__devices_are_dropped(bases, registry, tmp_path):
    def fill(layer):
        shell(layer)
        layer.device("memory", tarfile.CHRTYPE, 1, 1)
        layer.device("disk", tarfile.BLKTYPE, 254, 0)
        layer.device("whiteout", tarfile.CHRTYPE, 0, 0)
        layer.entry("fifo", tarfile.FIFOTYPE)

    reference = registry.push(make_image(tmp_path, fill), "devices")
    image = await bases.provide(reference, report=print)
    modes = [path.lstat().st_mode for path in image.layers[0].rglob("*")]
    assert not any(stat.S_ISCHR(mode) or stat.S_ISBLK(mode) for mode in modes)


async def test_hostile_image__overlay_attributes_are_dropped(bases, registry, tmp_path):
    def fill(layer):
        shell(layer)
        layer.directory("opaque", attributes={"trusted.overlay.opaque": "y"})

    reference = registry.push(make_image(tmp_path, fill), "attributes")
    try:
        image = await bases.provide(reference, report=print)
    except ImageRefused:
        return
    assert not os.listxattr(image.layers[0] / "opaque")


async def test_hostile_image__deep_tree_is_handled_and_removed(bases, registry, tmp_path):
    def fill(layer):
        shell(layer)
        layer.directory("d/" * DEPTH)

    reference = registry.push(make_image(tmp_path, fill), "deep")
    image = await bases.provide(reference, report=print)
    assert is_deep(image.layers[0])
    await bases.store.remove_unused(list)
    assert not image.layers[0].exists()


def is_deep(layer):
    return (layer / ("d/" * DEPTH)).is_dir()


async def test_hostile_image__too_large_image_is_rejected_before_the_download(registry, tmp_path):
    noise = os.urandom(2 << 20)
    layout = make_image(tmp_path, lambda layer: layer.file("noise", noise))
    bases = bases_in(tmp_path / "images", insecure=registry.address, largest_mb=1)
    said: list[str] = []
    with pytest.raises(ImageRefused, match="larger than 1 MiB"):
        await bases.provide(registry.push(layout, "large"), report=said.append)
    assert not said


@pytest.mark.parametrize("files", [1, 200])
async def test_hostile_image__decompression_bomb_is_rejected(registry, tmp_path, files):
    def fill(layer):
        for number in range(files):
            layer.file(str(number), bytes((64 << 20) // files))

    bases = bases_in(tmp_path / "images", insecure=registry.address, largest_mb=8)
    with pytest.raises(ImageRefused, match="larger than 8 MiB"):
        await bases.provide(registry.push(make_image(tmp_path, fill), "bomb"), report=print)
    assert not list((tmp_path / "images/building").iterdir())
    assert not list((tmp_path / "images/layers").iterdir())


async def test_hostile_image__endless_configuration_is_rejected(bases, registry, tmp_path):
    layout = make_image(tmp_path, shell)
    reconfigure(
        layout, lambda configuration: configuration["config"].update(Env=["A=" + "x" * (2 << 20)])
    )
    with pytest.raises(ImageRefused, match="too large"):
        await bases.provide(registry.push(layout, "config"), report=print)


async def test_hostile_image__malformed_configuration_is_rejected(bases, registry, tmp_path):
    layout = make_image(tmp_path, shell)
    reconfigure(layout, lambda configuration: configuration["config"].update(Env={"A": []}))
    with pytest.raises(ImageRefused, match="malformed"):
        await bases.provide(registry.push(layout, "nonsense"), report=print)


async def test_hostile_image__foreign_architecture_is_rejected(bases, registry, tmp_path):
    layout = make_image(tmp_path, shell)
    reconfigure(layout, lambda configuration: configuration.update(architecture="s390x"))
    with pytest.raises(ImageRefused, match="linux/s390x"):
        await bases.provide(registry.push(layout, "foreign"), report=print)
