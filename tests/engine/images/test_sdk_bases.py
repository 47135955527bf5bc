"""Templates on foreign images, through the SDK."""

import pytest
from e2b import BuildException, Sandbox, Template

from tests.engine.engine_process import running_engine
from tests.engine.images.local_registry import (
    LOGIN,
    make_image,
    needs_registry,
    shell,
)

pytestmark = [pytest.mark.needs_engine, needs_registry, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def engine(locked_registry):
    with running_engine("--insecure-registries", locked_registry.address) as engine:
        yield engine


def test_base_image__private_image_gets_the_missing_user(engine, locked_registry, tmp_path):
    layout = make_image(tmp_path, shell, settings=("--config.env=GREETING=hello",))
    reference = locked_registry.push(layout, "small")
    name, _, password = LOGIN.partition(":")
    template = Template().from_image(reference, username=name, password=password)
    template = template.run_cmd("echo $GREETING > /home/user/greeting")
    Template.build(template, alias="small", **engine.options)
    with Sandbox.create("small", **engine.options) as sandbox:
        assert sandbox.commands.run("cat greeting; id -un; echo $GREETING").stdout.split() == [
            "hello",
            "user",
            "hello",
        ]
        assert sandbox.files.read("greeting") == "hello\n"
    assert password not in engine.log


def test_base_image__image_without_a_shell_fails_the_build(engine, locked_registry, tmp_path):
    layout = make_image(tmp_path, lambda layer: layer.file("program", mode=0o755))
    reference = locked_registry.push(layout, "bare")
    name, _, password = LOGIN.partition(":")
    template = Template().from_image(reference, username=name, password=password)
    with pytest.raises(BuildException, match="has no shell"):
        Template.build(template, alias="bare", **engine.options)
