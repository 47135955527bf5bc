"""The builder's helpers for packages, with the real package sources; slow."""

import pytest
from e2b import AsyncSandbox, AsyncTemplate

pytestmark = [pytest.mark.needs_engine, pytest.mark.slow, pytest.mark.timeout(600)]


async def test_template_packages__are_installed_from_their_sources(options, name):
    template = (
        AsyncTemplate()
        .from_base_image()
        .apt_install("jq", no_install_recommends=True)
        .pip_install("six==1.17.0")
        .set_workdir("/home/user/app")
        .npm_install("is-number@7.0.0")
        .make_symlink("/usr/bin/jq", "/home/user/j")
        .make_dir("/home/user/made", mode=0o700)
        .rename("/home/user/made", "/home/user/renamed")
        .remove("/home/user/.bashrc")
    )
    await AsyncTemplate.build(template, name, **options)
    async with await AsyncSandbox.create(name, timeout=300, **options) as sandbox:
        said = await sandbox.commands.run(
            "echo '{\"a\": 1}' | ~/j .a; python3 -c 'import six; print(six.__version__)'; "
            "node -p 'require(\"is-number\")(7)'; stat -c %a ~/renamed; ls ~/.bashrc || true"
        )
    assert said.stdout.splitlines() == ["1", "1.17.0", "true", "700"]
