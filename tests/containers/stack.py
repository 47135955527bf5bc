"""The stack of docker-compose.yml under podman, with the images of the Dockerfile."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".cache/image-test"
WHEELS = CACHE / "wheels"
PROJECT = "sandbox-image-test"
SERVICES = ("postgres", "engine", "server")

_STOPS_WITHIN_S = 60
_PATIENCE_S = 300


class Stack:
    """A checkout of its own, with an .env that nobody else's is touched by."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def check_out(self) -> None:
        """Copy what an image is built from, and what it is built by."""
        admitted = (ROOT / ".dockerignore").read_text().splitlines()
        ours = (line.removeprefix("!") for line in admitted if line.startswith("!"))
        for name in (*ours, ".dockerignore", "Dockerfile", "docker-compose.yml"):
            source, copy = ROOT / name, self._directory / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, copy)
        example = (ROOT / ".env.example").read_text()
        given = example.replace("POSTGRES_PASSWORD=", "POSTGRES_PASSWORD=hunter2", 1)
        given = given.replace("PUBLISH=127.0.0.1:8100", f"PUBLISH=127.0.0.1:{self._port}")
        # Built from the internet it would take minutes, and is tried elsewhere.
        given += "SANDBOX_SERVER_AGENT_TEMPLATE=false\nSANDBOX_ENGINE_READY_SANDBOXES=0\n"
        (self._directory / ".env").write_text(given)

    def build(self) -> None:
        arguments = (
            f"--volume={WHEELS}:/wheels:ro",
            "--network=host",
            "--format=docker",
            "--layers",
        )
        self._compose(
            *(f"--podman-build-args={one}" for one in arguments),
            *("build", "--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels"),
        )

    def up(self) -> None:
        """Start all of it at once: podman-compose takes no notice of what waits for whom."""
        self._compose("up", "--detach", "--no-build")
        for service in SERVICES:
            self.await_healthy(service)

    def down(self) -> None:
        self._compose("down", "--timeout", str(_STOPS_WITHIN_S))

    def remove(self) -> None:
        """Leave nothing of it but the images."""
        self._compose("down", "--timeout", str(_STOPS_WITHIN_S), "--volumes")
        for network in ("database", "engine"):  # which podman-compose leaves
            self._ask("network", "rm", f"{PROJECT}_{network}")

    def await_healthy(self, service: str) -> None:
        """Ask the container's own health check, for which podman by itself needs systemd."""
        assert self.exists(service)  # podman-compose ends well, too, where it could not make it
        check = ("healthcheck", "run", self.container(service))
        await_true(lambda: self._ask(*check).returncode == 0, lambda: self.logs(service))

    def exists(self, service: str) -> bool:
        return self._ask("container", "exists", self.container(service)).returncode == 0

    def container(self, service: str) -> str:
        return f"{PROJECT}_{service}_1"

    def inside(self, service: str, *words: str) -> str:
        """Run a command in a container."""
        return self._podman("exec", self.container(service), *words)

    def inspect(self, service: str, wanted: str) -> str:
        return self._podman("inspect", "--format", wanted, self.container(service)).strip()

    def kill(self, service: str) -> None:
        """Kill a container's first process behind podman's back, as a crash would."""
        os.kill(int(self.inspect(service, "{{.State.Pid}}")), signal.SIGKILL)

    def stop(self, service: str) -> None:
        self._podman("stop", "--time", str(_STOPS_WITHIN_S), self.container(service))

    def start(self, service: str) -> None:
        self._podman("start", self.container(service))
        self.await_healthy(service)

    def logs(self, service: str) -> str:
        said = self._ask("logs", self.container(service))
        return (said.stdout + said.stderr)[-3000:]

    def client(self, key: str) -> httpx.Client:
        """Ask with a new connection each time: the other end may be another container."""
        once = httpx.Limits(max_keepalive_connections=0)
        headers = {"X-API-Key": key}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120, limits=once)

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["podman", *words], capture_output=True, text=True, check=False)

    def _podman(self, *words: str) -> str:
        done = self._ask(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _compose(self, *words: str) -> None:
        command = ["podman-compose", "--project-name", PROJECT, *words]
        done = subprocess.run(
            command, cwd=self._directory, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def await_true(look: Callable[[], bool], explain: Callable[[], str] = str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not look():
        assert time.monotonic() < end, explain()
        time.sleep(0.5)


@contextmanager
def running_stack() -> Iterator[Stack]:
    """Build and start it; it leaves nothing but cached layers."""
    directory = Path(tempfile.mkdtemp(prefix="stack-"))
    stack = Stack(directory)
    try:
        stack.check_out()
        stack.remove()  # what a run left that did not come to its end
        stack.build()
        stack.up()
        yield stack
    finally:
        stack.remove()
        shutil.rmtree(directory)
