import pytest

from sandbox_engine.container.disk import detach
from sandbox_engine.container.overlay import mount_overlay

pytestmark = pytest.mark.needs_engine


def test_overlay__root_supports_150_layers(tmp_path):
    layers = [tmp_path / "layers" / f"{number:032x}" for number in range(150)]
    for number, layer in enumerate(layers):
        layer.mkdir(parents=True)
        (layer / f"file-{number}").write_text("own")
        (layer / "shared").write_text(str(number))
    root, changes = tmp_path / "root", tmp_path / "changes"
    root.mkdir()
    changes.mkdir()
    mount_overlay(layers, changes=changes, target=root, files={})
    try:
        assert (root / "shared").read_text() == "149"
        assert (root / "file-0").read_text() == "own"
        assert len(list(root.iterdir())) == 151
    finally:
        detach(root)
