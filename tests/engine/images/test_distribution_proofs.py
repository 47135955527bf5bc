"""Sandboxes of whole distributions; each takes a minute or more: `make proofs`."""

import pytest
from e2b import Sandbox, Template

from sandbox_engine.images import node
from sandbox_engine.images.apt import host_suite
from tests.engine.engine_process import running_engine
from tests.engine.images.base_images import UBUNTU_KEYRING, needs_debian
from tests.engine.images.local_registry import make_image, needs_registry, run

pytestmark = [pytest.mark.slow, pytest.mark.needs_engine, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def engine(registry):
    with running_engine("--insecure-registries", registry.address) as engine:
        yield engine


def run_on(engine, template, command):
    """Build a template and run a command in a sandbox of it."""
    Template.build(template, alias="proof", **engine.options)
    with Sandbox.create("proof", timeout=600, **engine.options) as sandbox:
        return sandbox.commands.run(command, timeout=300).stdout


@needs_debian
def test_distribution__debian_release_uses_its_packages(engine):
    template = Template().from_debian_image("trixie-slim").apt_install("hello")
    said = run_on(engine, template, "hello; id -un; . /etc/os-release; echo $VERSION_ID")
    assert said == "Hello, world!\nuser\n13\n"


@needs_debian
def test_distribution__python_version_with_pip(engine):
    template = Template().from_python_image("3.11").pip_install("six")
    said = run_on(
        engine, template, "python -c 'import six, sys; print(sys.version)'; gcc --version"
    )
    assert said.startswith("3.11.")


@needs_debian
@pytest.mark.parametrize("version", ["lts", "20"])
def test_distribution__node_version_with_npm(engine, version):
    template = Template().from_node_image(version).npm_install("is-odd")
    command = "node --version; npm --version; node -e \"console.log(require('is-odd')(3))\""
    said = run_on(engine, template, command).split()
    assert said[0].startswith(f"v{node.version() if version == 'lts' else version}.".rstrip("."))
    assert said[2] == "true"


@pytest.mark.skipif(not UBUNTU_KEYRING.exists(), reason="no keys of Ubuntu")
def test_distribution__ubuntu_version(engine):
    template = Template().from_ubuntu_image("24.04")
    assert run_on(engine, template, ". /etc/os-release; echo $VERSION_ID") == "24.04\n"


@needs_registry
def test_distribution__distribution_image_from_a_registry_works(engine, registry, tmp_path):
    archive = tmp_path / "debian.tar"
    packages = "--include=ca-certificates,curl,sudo"
    run("mmdebstrap", "--variant=minbase", packages, host_suite(), str(archive))
    reference = registry.push(make_image(tmp_path, archive), "debian")
    template = Template().from_image(reference).apt_install("hello")
    command = (
        "hello; sudo -n id -un; id -un; bash --version | head -1; sudo apt-get check | head -1"
    )
    said = run_on(engine, template, command).splitlines()
    assert said[:3] == ["Hello, world!", "root", "user"]
    assert said[3].startswith("GNU bash")
