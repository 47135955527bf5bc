"""Official images without a registry."""

import re
from dataclasses import replace

import pytest

from sandbox_engine.images import node
from sandbox_engine.images.apt import (
    host_sources,
    host_suite,
    host_vendor,
    sources_of,
)
from sandbox_engine.images.bases.distributions import find_distribution
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.references import Reference
from sandbox_engine.system.errors import ImageRefused
from sandbox_engine.system.settings import Settings
from tests.engine.images.base_images import UBUNTU_KEYRING, needs_debian

pytestmark = pytest.mark.needs_engine


@pytest.fixture(scope="module")
def host():
    return BaseRecipe.of_host(certificates_dir=Settings().certificates_dir)


def found(reference, host):
    return find_distribution(Reference.parse(reference), host)


@needs_debian
@pytest.mark.parametrize(
    ("reference", "suite"),
    [
        *(("debian", "stable"), ("debian:stable-slim", "stable"), ("debian:12", "bookworm")),
        *(("python:3", "stable"), ("python:3.11-slim", "bookworm"), ("python:3.13", "trixie")),
        *(("python:3-bookworm", "bookworm"), ("python:slim", "stable")),
        *(("node:lts", "stable"), ("node:20-bookworm-slim", "bookworm")),
    ],
)
def test_distribution__official_image_maps_to_a_release(reference, suite, host):
    assert found(reference, host).recipe.suite == suite


@needs_debian
def test_distribution__slim_variants_have_no_compilers(host):
    assert "build-essential" in found("python:3.11", host).recipe.packages
    assert "build-essential" not in found("python:3.11-slim", host).recipe.packages


@needs_debian
def test_distribution__node_is_bundled_or_from_npm(host):
    major = node.version().partition(".")[0]
    assert found("node:lts", host).node == found(f"node:{major}", host).node == node.version()
    assert found("node:20.1", host).node == "20.1"
    assert found("debian:12", host).node is None


@needs_debian
def test_distribution__digest_depends_on_node_and_certificates(host):
    images = [found(name, host) for name in ("node:18", "node:20", "node:20-slim", "debian")]
    images.append(found("debian", replace(host, apt_options=("Acquire::Retries 1;",))))
    assert len({image.digest for image in images}) == len(images)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        *(("python:3.12", "3.11, 3.13"), ("python:3.13-bookworm", "has no Python 3.13")),
        *(("python:3.11-alpine", "alpine"), ("node:alpine", "alpine"), ("debian:6", "bookworm")),
    ],
)
def test_distribution__unavailable_version_is_rejected_with_alternatives(reference, reason, host):
    with pytest.raises(ImageRefused, match=re.escape(reason)):
        found(reference, host)


@pytest.mark.skipif(UBUNTU_KEYRING.exists(), reason="the keys of Ubuntu are here")
def test_distribution__ubuntu_requires_verifiable_packages(host):
    with pytest.raises(ImageRefused, match="ubuntu-archive-keyring"):
        found("ubuntu:24.04", host)


@pytest.mark.parametrize(
    "reference", ["alpine", "example.com/debian", "someone/debian", f"debian@sha256:{'0' * 64}"]
)
def test_distribution__other_images_are_not_distributions(reference, host):
    assert found(reference, host) is None


def test_distribution__package_sources_follow_the_release():
    sources = (
        "deb http://mirror.example/debian bookworm main",
        "Suites: bookworm bookworm-updates",
    )
    assert sources_of(sources, "bookworm", "trixie") == (
        "deb http://mirror.example/debian trixie main",
        "Suites: trixie trixie-updates",
    )
    assert sources_of(sources, "bookworm", "sid") == ()
    assert host_sources(host_suite()) is not None
    assert host_vendor() in ("debian", "ubuntu")
