import base64
import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

from sandbox_engine.images.confinement import FETCHER, Confinement, OutputTooLong
from sandbox_engine.images.credentials import RegistryCredentials
from sandbox_engine.images.disk_space import DiskSpace
from sandbox_engine.images.references import Reference
from sandbox_engine.images.registry.skopeo_log import explain, is_refusal
from sandbox_engine.images.scratch import Scratch
from sandbox_engine.system.errors import ImageRefused, RegistryRefused, RegistryUnreachable

_TIME_TO_ANSWER = timedelta(seconds=30)
_TIME_TO_COPY = timedelta(minutes=30)
_AUTH_FILE = "auth.json"
_POLICY = Path("/etc/containers/policy.json")


class Skopeo:
    """Runs skopeo for one registry, confined to a scratch directory."""

    def __init__(
        self,
        scratch: Scratch,
        registry: str,
        credentials: RegistryCredentials | None,
        *,
        insecure: bool,
        room: DiskSpace,
    ) -> None:
        self._scratch = scratch
        self._registry = registry
        self._credentials = credentials
        self._insecure = insecure
        self._room = room
        self.directory = scratch.path / "fetched"
        self.directory.mkdir(mode=0o700)
        _write_auth(self.directory / _AUTH_FILE, registry, credentials)

    async def inspect(self, reference: Reference, *flags: str, limit: int) -> bytes:
        """Get the manifest, or what the flags select."""
        command = ("inspect", *flags, self._tls("--tls-verify"), f"--authfile={_AUTH_FILE}")
        try:
            return await self._run(*command, f"docker://{reference}", stdout_limit=limit)
        except TimeoutError:
            raise RegistryUnreachable(f"{self._registry} does not answer.") from None
        except OutputTooLong:
            raise ImageRefused(f"The manifest from {self._registry} is too large.") from None

    async def copy(self, reference: Reference) -> None:
        """Copy the image into the OCI layout `image` in the directory."""
        command = ("copy", "--quiet", self._tls("--src-tls-verify"), f"--src-authfile={_AUTH_FILE}")
        compression = "--dest-compress-format=gzip"  # the only tag that umoci supports
        source, destination = f"docker://{reference}", "oci:image:latest"
        try:
            await self._run(*command, compression, source, destination, time_limit=_TIME_TO_COPY)
        except TimeoutError:
            raise ImageRefused(
                f"The download of the image from {self._registry} timed out."
            ) from None

    async def _run(
        self, *command: str, stdout_limit: int = 0, time_limit: timedelta = _TIME_TO_ANSWER
    ) -> bytes:
        if shutil.which("skopeo") is None:
            raise RegistryUnreachable(
                "Pulling from registries requires skopeo; see `sandbox-engine doctor`."
            )
        place = Confinement(self._scratch, self.directory, self._room, time_limit)
        policy = () if _POLICY.exists() else ("--insecure-policy",)
        done = await place.fetch("skopeo", *policy, *command, stdout_limit=stdout_limit)
        if done.returncode == 0:
            return done.stdout
        reason = explain(done.stderr)
        if self._credentials is not None:
            reason = reason.replace(self._credentials.password, "***")
        refused = RegistryRefused if is_refusal(reason) else RegistryUnreachable
        raise refused(f"{self._registry}: {reason}")

    def _tls(self, flag: str) -> str:
        return f"{flag}={'false' if self._insecure else 'true'}"


def _write_auth(path: Path, registry: str, credentials: RegistryCredentials | None) -> None:
    """Write the password to a file readable by skopeo only; command lines are public."""
    known = {}
    if credentials is not None:
        pair = f"{credentials.username}:{credentials.password}".encode()
        known[registry] = {"auth": base64.b64encode(pair).decode()}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:  # noqa: PTH123
        os.fchown(descriptor, FETCHER, FETCHER)
        json.dump({"auths": known}, file)
