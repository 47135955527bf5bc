import os
import shutil
import socket
from contextlib import closing as closing_cursor

import pytest

from sandbox_engine.container.disk import detach
from sandbox_engine.container.overlay import mount_overlay
from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.rootfs.trees import TreeCursor, remove_tree
from sandbox_engine.templates.building.layer_capture import copy_changes, has_changes

pytestmark = pytest.mark.needs_engine

_FILES = {"run/e2b/.E2B_SANDBOX_ID": "id", "etc/hosts": "hosts"}


@pytest.fixture
def base(tmp_path):
    base = tmp_path / "base"
    (base / "etc").mkdir(parents=True)
    (base / "run").mkdir()
    for name in ("dir/below", "gone"):
        (base / name).mkdir(parents=True)
        (base / name / "file").write_text("base")
    for path in (base, *base.rglob("*")):
        os.chown(path, UID_BASE, UID_BASE)
    return base


@pytest.fixture
def change(tmp_path):
    """Have something done in a root on some layers; what changed becomes one more layer."""

    def run(layers, act):
        number = len(layers)
        root, changes = tmp_path / f"root{number}", tmp_path / f"changes{number}"
        layer = tmp_path / f"layer{number}"
        for made in (root, changes, layer):
            made.mkdir()
        mount_overlay(layers, changes=changes, target=root, files=_FILES)
        try:
            seen = act(root)
            if has_changes(changes / "upper"):
                copy_changes(changes / "upper", layer)
        finally:
            detach(root)
        return [*layers, layer], seen

    return run


def _look(root):
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else None
        for path in root.rglob("*")
    }


def test_layer_capture__captured_layers_reproduce_the_root(base, change):
    def first(root):
        shutil.rmtree(root / "gone")
        (root / "gone").mkdir()
        (root / "gone/new").write_text("new")
        (root / "dir").rename(root / "moved")
        return _look(root)

    def second(root):
        assert _look(root) == seen
        (root / "moved/below/file").write_text("changed")
        (root / "moved/below").rename(root / "out")
        (root / "gone/new").unlink()
        return _look(root)

    layers, seen = change([base], first)
    layers, seen = change(layers, second)
    _, at_last = change(layers, _look)
    assert at_last == seen
    assert seen["out/file"] == "changed"
    assert "dir" not in seen


def test_layer_capture__engine_files_are_no_change(base, change, tmp_path):
    def touch(root):
        (root / "etc/hosts").write_text("other")
        (root / "etc/resolv.conf").write_text("other")
        (root / "run/e2b/.E2B_SANDBOX_ID").unlink()

    change([base], touch)
    assert _look(tmp_path / "layer1") == {}


@pytest.mark.parametrize("name", ["run", "etc"])
def test_layer_capture__changed_engine_directory_is_a_change(base, change, tmp_path, name):
    change([base], lambda root: (root / name).chmod(0o700))
    assert (tmp_path / "layer1" / name).stat().st_mode & 0o777 == 0o700


def test_layer_capture__sockets_are_dropped_and_hard_links_kept(base, change, tmp_path):
    def act(root):
        (root / "one").write_text("shared")
        (root / "two").hardlink_to(root / "one")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(root / "socket"))

    change([base], act)
    layer = tmp_path / "layer1"
    assert {path.name for path in layer.iterdir()} == {"one", "two"}
    assert (layer / "one").samefile(layer / "two")


@pytest.mark.slow  # makes a very deep tree
def test_layer_capture__very_deep_tree_is_copied(base, change, tmp_path):
    depth = 3000
    try:
        change([base], lambda root: _go_down(root, depth, make=True))
        assert _go_down(tmp_path / "layer1", depth, make=False) == depth
    finally:  # pytest could not
        with closing(os.open(tmp_path, os.O_RDONLY)) as directory:
            for name in ("changes1", "layer1"):
                remove_tree(directory, name)


def _go_down(directory, depth, *, make):
    with closing(os.open(directory, os.O_RDONLY)) as top, closing_cursor(TreeCursor(top)) as cursor:
        for _ in range(depth):
            if make:
                os.mkdir("d", dir_fd=cursor.descriptor)
            cursor.enter("d", across_mounts=True)
        return cursor.depth
