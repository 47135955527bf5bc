"""A real registry on the loopback, and images made for it."""

import hashlib
import http.client
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.engine_process import REPOSITORY

_FETCHED = REPOSITORY / ".cache" / "test-programs"
_PATH = f"{os.environ['PATH']}:{_FETCHED / 'usr/bin'}:{_FETCHED / 'bin'}"


def _find(program: str) -> str:
    return shutil.which(program, path=_PATH) or ""


_BUSYBOX = _find("busybox")
_REGISTRY = _find("docker-registry")
_LACKING = [name for name in ("busybox", "docker-registry", "skopeo", "umoci") if not _find(name)]
needs_registry = pytest.mark.skipif(bool(_LACKING), reason=f"not there: {', '.join(_LACKING)}")

LOGIN = "alice:open sesame"
_HTPASSWD = "alice:$2y$05$5I9CGBiq6wCktERU8V/nZelEx1UrMHnA9PXdrYR3zCPekQOsIgNti\n"


_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


class LocalRegistry:
    """The address of a registry that serves what is pushed to it."""

    def __init__(self, address: str, *, login: str | None) -> None:
        self.address = address
        self._login = login

    def push(self, layout: Path, name: str, *flags: str) -> str:
        """Put the image of an OCI layout into the registry; gives its reference."""
        login = [f"--dest-creds={self._login}"] if self._login else []
        reference = f"{self.address}/{name}"
        command = ("skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false")
        run(*command, *login, *flags, f"oci:{layout}:latest", f"docker://{reference}")
        return reference

    def push_index(self, name: str, *, variants: Mapping[str, str]) -> str:
        """Put an index into the registry: for each platform a tag of the same repository."""
        entries = []
        for platform, tag in variants.items():
            system, _, architecture = platform.partition("/")
            document = self._request("GET", name, tag)
            described = {"mediaType": _MANIFEST, "digest": _digest(document), "size": len(document)}
            entries.append(described | {"platform": {"os": system, "architecture": architecture}})
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}
        self._request("PUT", name, "index", json.dumps(index).encode())
        return f"{self.address}/{name}:index"

    def digest(self, name: str, tag: str) -> str:
        return _digest(self._request("GET", name, tag))

    def _request(self, method: str, name: str, tag: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection(self.address)
        headers = {"Accept": _MANIFEST, "Content-Type": _INDEX}
        connection.request(method, f"/v2/{name}/manifests/{tag}", body, headers)
        answer = connection.getresponse()
        document = answer.read()
        connection.close()
        assert answer.status in (200, 201), document
        return document


@contextmanager
def running_registry(*, login: str | None = None, port: int = 0) -> Iterator[LocalRegistry]:
    """Run a registry; with a login it serves nobody else."""
    directory = Path(tempfile.mkdtemp(prefix="registry-"))
    configuration: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(directory)}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    if login is not None:
        (directory / "htpasswd").write_text(_HTPASSWD)
        access = {"realm": "test", "path": str(directory / "htpasswd")}
        configuration["auth"] = {"htpasswd": access}
    (directory / "config.json").write_text(json.dumps(configuration))  # JSON is YAML too
    log = directory / "log"
    with log.open("wb") as file:
        command = [_REGISTRY, "serve", str(directory / "config.json")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
    try:
        yield LocalRegistry(_address(process, log), login=login)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    while process.poll() is None:
        if found := re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text()):
            return found[1]
        time.sleep(0.02)
    raise AssertionError(f"the registry did not start: {log.read_text()}")


class Layer:
    """A layer as its author wants it, also as no honest tool would make it."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def file(self, name: str, content: bytes = b"", *, mode: int = 0o644, owner: int = 0) -> None:
        self.entry(name, tarfile.REGTYPE, content, mode=mode, owner=owner)

    def directory(
        self, name: str, *, mode: int = 0o755, attributes: Mapping[str, str] | None = None
    ) -> None:
        headers = {f"SCHILY.xattr.{name}": value for name, value in (attributes or {}).items()}
        self.entry(name, tarfile.DIRTYPE, mode=mode, headers=headers)

    def symlink(self, name: str, target: str) -> None:
        self.entry(name, tarfile.SYMTYPE, target=target)

    def hardlink(self, name: str, target: str) -> None:
        self.entry(name, tarfile.LNKTYPE, target=target)

    def device(self, name: str, kind: bytes, major: int, minor: int) -> None:
        self.entry(name, kind, mode=0o666, device=(major, minor))

    def entry(
        self,
        name: str,
        kind: bytes,
        content: bytes = b"",
        *,
        mode: int = 0o777,
        owner: int = 0,
        target: str = "",
        device: tuple[int, int] = (0, 0),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.size, info.mode, info.linkname = kind, len(content), mode, target
        info.uid = info.gid = owner
        info.devmajor, info.devminor = device
        info.pax_headers = dict(headers or {})
        self._tar.addfile(info, io.BytesIO(content))


Fill = Callable[[Layer], None]


def shell(layer: Layer) -> None:
    """Write what the smallest image has that sandboxes can be made of."""
    layer.directory("bin")
    for path, name in ((_BUSYBOX, "bin/busybox"), *_libraries(_BUSYBOX)):
        layer.file(name, Path(path).read_bytes(), mode=0o755)
    for applet in "sh cat chmod env id ls mkdir sleep stat touch uname".split():
        layer.symlink(f"bin/{applet}", "busybox")


def _libraries(program: str) -> list[tuple[str, str]]:
    """Find what the program is linked to; Debian has a busybox that needs nothing and one that does."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return [(path, path[1:]) for path in re.findall(r"(/\S+) \(0x", listed.stdout)]


def make_image(directory: Path, *layers: Fill | Path, settings: tuple[str, ...] = ()) -> Path:
    """Make an OCI layout with an image of these layers, some of which may be archives already."""
    layout = Path(tempfile.mkdtemp(dir=directory)) / "layout"
    run("umoci", "init", "--layout", str(layout))
    image = f"{layout}:latest"
    run("umoci", "new", "--image", image)
    for layer in layers:
        archive = layer if isinstance(layer, Path) else _archive(layer, layout.with_suffix(".tar"))
        run("umoci", "raw", "add-layer", "--image", image, str(archive))
    if settings:
        run("umoci", "config", "--image", image, *settings)
    return layout


def _archive(fill: Fill, path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        fill(Layer(tar))
    return path


def reconfigure(layout: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change an image's configuration as no tool would."""
    index = json.loads((layout / "index.json").read_bytes())
    manifest = json.loads(_blob(layout, index["manifests"][0]).read_bytes())
    configuration = json.loads(_blob(layout, manifest["config"]).read_bytes())
    change(configuration)
    _replace(layout, manifest["config"], configuration)
    _replace(layout, index["manifests"][0], manifest)
    (layout / "index.json").write_text(json.dumps(index))


def _digest(document: bytes) -> str:
    return f"sha256:{hashlib.sha256(document).hexdigest()}"


def _blob(layout: Path, descriptor: dict[str, Any]) -> Path:
    digest: str = descriptor["digest"]
    return layout / "blobs" / digest.replace(":", "/")


def _replace(layout: Path, descriptor: dict[str, Any], document: dict[str, Any]) -> None:
    content = json.dumps(document).encode()
    descriptor["digest"] = _digest(content)
    descriptor["size"] = len(content)
    _blob(layout, descriptor).write_bytes(content)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
