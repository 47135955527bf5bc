import asyncio
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_engine.images import node
from sandbox_engine.images.apt import (
    host_sources,
    host_suite,
    is_usable_in_sandbox,
    without_credentials,
)
from sandbox_engine.images.certificates import read_certificates
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.store import ImageStore
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system.errors import CannotRun
from sandbox_engine.system.settings import Settings
from sandbox_engine.system.syscalls import mount, unmount
from tests.engine.engine_process import IMAGES, REPOSITORY
from tests.engine.images.base_images import bases_in
from tests.engine.polling import until

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(300)]

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"

BUILD = """
import asyncio, sys
from pathlib import Path
from sandbox_engine.images.apt import host_sources, host_suite
from sandbox_engine.images.recipe import BaseRecipe
from tests.engine.images.base_images import bases_in

suite = host_suite()
recipe = BaseRecipe(suite=suite, sources=host_sources(suite), packages=("sudo",))
bases = bases_in(Path(sys.argv[1]), recipe=recipe)
asyncio.run(bases.ensure_base(report=lambda line: print(line, flush=True)))
"""


def small_recipe(*packages):
    suite = host_suite()
    return BaseRecipe(suite=suite, sources=host_sources(suite), packages=("sudo", *packages))


def stored(directory):
    """List what a store holds: complete layers, and unfinished builds."""
    return [[path.name for path in (directory / kind).iterdir()] for kind in ("layers", "building")]


@pytest.fixture(scope="session")
def base():
    """Build the base image of this machine once; it is kept for the next run."""
    recipe = BaseRecipe.of_host(certificates_dir=Settings().certificates_dir)
    return asyncio.run(bases_in(IMAGES, recipe=recipe).ensure_base(report=print))


@pytest.fixture
def tree(base):
    return base.layers[0]


@pytest.fixture
def root(tree, tmp_path):
    """Mount the base for a test that runs its programs, so that none leaves a file in it."""
    directories = [tmp_path / name for name in ("upper", "work", "root")]
    for directory in directories:
        directory.mkdir()
    upper, work, root = directories
    mount("overlay", str(root), "overlay", 0, f"lowerdir={tree},upperdir={upper},workdir={work}")
    yield root
    unmount(str(root))


def output_of(root, *command):
    environment = {"PATH": "/usr/local/bin:/usr/bin"}
    done = subprocess.run(
        ["/usr/sbin/chroot", root, *command],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_base_image__has_the_tools_agents_expect(root):
    for program in "bash curl git less ps python python3 sh ssh sudo tar unzip wget".split():
        assert (root / "usr/bin" / program).exists(), program
    assert output_of(root, "python", "--version") == output_of(root, "python3", "--version")
    assert "python3" in output_of(root, "pip", "--version")
    assert output_of(root, "node", "--version") == f"v{node.version()}\n"
    assert int(output_of(root, "npm", "--version").split(".")[0]) >= 10
    assert output_of(root, "python", "-m", "venv", "--help")


def test_base_image__has_passwordless_sudo(tree):
    assert "user:x:1000:1000::/home/user:/bin/bash" in (tree / "etc/passwd").read_text()
    assert (tree / "home/user").stat().st_uid == UID_BASE + 1000
    rules = tree / "etc/sudoers.d/user"
    assert stat.S_IMODE(rules.stat().st_mode) == 0o440
    assert "user ALL=(ALL:ALL) NOPASSWD: ALL" in rules.read_text()
    assert stat.S_IMODE((tree / "usr/bin/sudo").stat().st_mode) == 0o4755


def test_base_image__all_accounts_may_install_packages(tree):
    assert not list(tree.glob("usr/lib/python3*/EXTERNALLY-MANAGED"))
    for directory in ("bin", "lib/node_modules", "lib/node_modules/npm"):
        assert stat.S_IMODE((tree / "usr/local" / directory).stat().st_mode) == 0o777


def test_base_image__belongs_to_sandbox_root(tree):
    statuses = [path.lstat() for path in (tree, *tree.rglob("*"))]
    assert len(statuses) > 5000
    assert {status.st_uid - UID_BASE for status in statuses} <= {0, 42, 1000}  # root, _apt, user
    assert all(status.st_gid >= UID_BASE for status in statuses)
    assert not any(stat.S_ISCHR(s.st_mode) or stat.S_ISBLK(s.st_mode) for s in statuses)


def test_base_image__contains_no_host_specifics(tree):
    for name in ("etc/resolv.conf", "etc/hostname", "etc/apt/auth.conf"):
        assert not (tree / name).exists()
    assert not any((tree / "run").rglob("*.pid"))
    assert not list((tree / "var/lib/apt/lists").glob("*_Packages*"))


def test_base_image__trusts_extra_host_certificates(base, tree):
    certificates = read_certificates(Settings().certificates_dir)
    if not certificates:
        pytest.skip("this machine trusts no certificate of its own")
    trusted = (tree / "etc/ssl/certs/ca-certificates.crt").read_bytes()
    assert all(certificate.pem.strip() in trusted for certificate in certificates)
    assert base.env["NODE_EXTRA_CA_CERTS"] == "/etc/ssl/certs/ca-certificates.crt"


def test_base_image__is_inaccessible_to_host_accounts(base):
    assert stat.S_IMODE(IMAGES.stat().st_mode) == 0o700


@pytest.mark.slow
async def test_base_image__engines_sharing_a_directory_build_it_once(tmp_path):
    lines: list[str] = []
    recipe = small_recipe()
    engines = [bases_in(tmp_path / "images", recipe=recipe) for _ in range(2)]
    first, second = await asyncio.gather(
        *(bases.ensure_base(report=lines.append) for bases in engines)
    )
    assert first == second
    assert sum("extracting" in line for line in lines) == 1
    assert sum("another engine" in line for line in lines) == 1
    assert stored(tmp_path / "images") == [[recipe.digest], []]


@pytest.mark.slow
async def test_base_image__killed_build_is_cleaned_up(tmp_path):
    builder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BUILD, tmp_path, stdout=asyncio.subprocess.PIPE, cwd=REPOSITORY
    )
    assert builder.stdout is not None
    while b"installing" not in await builder.stdout.readline():
        pass
    builder.kill()
    await builder.wait()
    store = ImageStore(tmp_path, owner=tmp_path)

    async def is_clean() -> bool:
        await store.remove_unused(list)
        return not any(stored(tmp_path))

    await until(is_clean, timeout=30)  # its scratch files are nobody's once its last process ended
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


async def test_base_image__cancelled_build_is_cleaned_up(tmp_path):
    started = asyncio.Event()
    bases = bases_in(tmp_path, recipe=small_recipe())
    build = asyncio.create_task(bases.ensure_base(report=lambda _: started.set()))
    await started.wait()
    build.cancel()
    with pytest.raises(asyncio.CancelledError):
        await build
    assert stored(tmp_path) == [[], []]


async def test_base_image__failed_build_reports_the_reason(tmp_path):
    recipe = BaseRecipe(
        suite="nowhere",
        sources=("deb http://127.0.0.1:1/debian nowhere main",),
        apt_options=('Acquire::Retries "0";',),
    )
    bases = bases_in(tmp_path, recipe=recipe)
    with pytest.raises(CannotRun, match="Connection refused"):
        await bases.ensure_base(report=print)
    assert stored(tmp_path) == [[], []]


async def test_base_image__unused_layer_is_removed(tmp_path):
    images, gone = tmp_path / "images", tmp_path / "gone"
    gone.mkdir()
    stores = [ImageStore(images, owner=owner) for owner in (tmp_path, gone)]
    layers = [images / "layers" / name for name in ("paused", "theirs", "unused")]
    for layer in layers:
        layer.mkdir()
    await stores[1].remove_unused(lambda: layers)

    await stores[0].remove_unused(lambda: layers[:1])
    assert all(layer.exists() for layer in layers)

    gone.rmdir()
    await stores[0].remove_unused(lambda: layers[:1])
    assert stored(images) == [["paused"], []]


def test_base_image__recipe_digest_covers_all_inputs(tmp_path):
    (tmp_path / "company.crt").write_text(CERTIFICATE)
    (tmp_path / "notes.txt").write_text("no certificate")
    plain = small_recipe()
    trusting = BaseRecipe(
        suite=plain.suite,
        sources=plain.sources,
        packages=plain.packages,
        certificates=read_certificates(tmp_path),
    )
    assert [certificate.name for certificate in trusting.certificates] == ["company.crt"]
    digests = {recipe.digest for recipe in (plain, small_recipe(), small_recipe("jq"), trusting)}
    assert len(digests) == 3
    assert "SSL_CERT_FILE" in trusting.env
    assert "SSL_CERT_FILE" not in plain.env


def test_base_image__package_sources_are_the_distribution_only(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old.example/debian bookworm main\n"
        "deb [arch=amd64] https://mirror.example/debian bookworm main contrib # ours\n"
        "deb http://mirror.example/security bookworm-security main\n"
        "deb-src http://mirror.example/debian bookworm main\n"
        "deb cdrom:[Debian 12]/ bookworm main\n"
        "deb https://vendor.example/apt bookworm stable\n"
        "deb https://vendor.example/apt cloud-sdk-bookworm main\n"
    )
    (tmp_path / "sources.list.d/debian.sources").write_text("Types: deb\n")
    (tmp_path / "sources.list.d/vendor.sources").write_text("Types: deb\n")
    assert host_sources("bookworm", configuration=tmp_path) == (
        "deb [arch=amd64] https://mirror.example/debian bookworm main contrib",
        "deb http://mirror.example/security bookworm-security main",
        "Types: deb\n",
    )


def test_base_image__loopback_proxy_is_ignored():
    assert is_usable_in_sandbox('Acquire::http::Proxy "http://proxy.example:3128";')
    assert is_usable_in_sandbox('Acquire::http::Proxy "http://127.example:3128";')
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert not is_usable_in_sandbox(f'Acquire::http::Proxy "http://{host}:3142";')


def test_base_image__apt_passwords_stay_out():
    assert not is_usable_in_sandbox('Acquire::http::Proxy "http://me:secret@proxy.example";')
    sources = "deb https://me:secret@mirror.example/debian bookworm main"
    assert without_credentials(sources) == "deb https://mirror.example/debian bookworm main"
