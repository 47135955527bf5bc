import os
from datetime import timedelta

import pytest

from sandbox_engine.images.image import Image
from sandbox_engine.images.store import ImageStore
from sandbox_engine.templates.building.plan import Step, StepKind
from sandbox_engine.templates.building.step_cache import StepCache, step_key

pytestmark = pytest.mark.needs_engine

_RUN = Step(StepKind.RUN, ("echo",))


@pytest.fixture
def images(tmp_path):
    return ImageStore(tmp_path / "images", owner=tmp_path)


@pytest.fixture
def cache(tmp_path, images):
    return StepCache(tmp_path / "cache", images)


@pytest.fixture
async def image(images):
    """Make an image of two layers."""
    layers = [await images.add_layer(name, lambda tree: None) for name in ("one", "two")]
    return Image(tuple(layers), {"A": "1"}, "builder", "/srv")


async def test_step_cache__survives_a_restart(cache, image, images, tmp_path):
    cache.keep("key", image)
    again = StepCache(tmp_path / "cache", images)
    assert again.find("key") == image
    assert set(again.layers()) == set(image.layers)
    assert again.find("other") is None


async def test_step_cache__result_with_missing_layers_is_ignored(cache, image):
    cache.keep("key", image)
    image.layers[1].rmdir()
    assert cache.find("key") is None
    assert set(cache.layers()) == {image.layers[0]}


async def test_step_cache__truncated_result_is_ignored(cache, image, tmp_path):
    cache.keep("key", image)
    path = tmp_path / "cache" / "key"
    path.write_bytes(path.read_bytes()[:-20])
    assert cache.find("key") is None
    assert list(cache.layers()) == []


async def test_step_cache__unused_results_are_removed(cache, image, tmp_path):
    for key in ("used", "unused"):
        cache.keep(key, image)
        os.utime(tmp_path / "cache" / key, (0, 0))
    cache.find("used")
    cache.forget_unused(timedelta(days=1))
    assert cache.find("used") == image
    assert cache.find("unused") is None


async def test_step_cache__key_covers_all_inputs(image, images):
    keys = {
        step_key(image, _RUN),
        step_key(image, Step(StepKind.RUN, ("echo", ""))),
        step_key(image, Step(StepKind.COPY, ("echo",))),
        step_key(image, Step(StepKind.RUN, ("echo",), files_hash="x")),
        step_key(Image(image.layers[:1], image.env, image.user, image.workdir), _RUN),
        step_key(Image(image.layers, {"A": "2"}, image.user, image.workdir), _RUN),
        step_key(Image(image.layers, image.env, "root", image.workdir), _RUN),
        step_key(Image(image.layers, image.env, image.user, "/"), _RUN),
    }
    assert len(keys) == 8
    forced = Step(StepKind.RUN, ("echo",), force=True)
    assert step_key(image, forced) == step_key(image, _RUN)
