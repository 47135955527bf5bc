"""Tries every public method of several versions of E2B's SDKs and writes what works."""

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trustme
from benchmarks.engine import Engine, started_engine

from compatibility import clients
from compatibility.document import Finding, render
from compatibility.names import Loopback
from compatibility.versions import JAVASCRIPT, PYTHON

_HERE = Path(__file__).parent
_DOCUMENT = _HERE.parent / "docs" / "e2b-compatibility.md"
_DOMAIN = "sandboxes.test"
_NAME_SERVER = "127.53.53.53"
_AT_ONCE = 2
_AS_THE_CLIENTS_SEE_IT = (
    'mount --bind "$1" /etc/resolv.conf && mount --bind "$2" /etc/nsswitch.conf'
    ' && shift 2 && exec "$@"'
)


async def main() -> int:
    """Run all probes and write the document; fails if a supported method did not work."""
    only = sys.argv[1:]
    async with _ground() as environment:
        limit = asyncio.Semaphore(_AT_ONCE)
        runs = [
            *(_python(one, environment, limit) for one in PYTHON),
            *(_javascript(one, environment, limit) for one in JAVASCRIPT),
        ]
        findings = [finding for run in await asyncio.gather(*runs) for finding in run]
    failed = [one for one in findings if one.verdict in ("fails", "no probe")]
    for one in failed:
        print(f"{one.version} {one.method}: {one.verdict}\n{one.detail}")
    if not only:
        _DOCUMENT.write_text(
            render(findings, languages=[("Python", PYTHON), ("JavaScript", JAVASCRIPT)])
        )
    return 1 if failed else 0


@asynccontextmanager
async def _ground() -> AsyncIterator[Mapping[str, str]]:
    """Run an engine with TLS under the names of its domain."""
    with tempfile.TemporaryDirectory(prefix="compatibility-") as directory:
        flags, port = _certified(Path(directory))
        names, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Loopback(_DOMAIN), local_addr=(_NAME_SERVER, 53)
        )
        async with started_engine(*flags, "--port", str(port)) as engine:
            yield _environment(Path(directory), engine, port)
        names.close()


def _certified(directory: Path) -> tuple[Sequence[str], int]:
    authority = trustme.CA()
    certificate = authority.issue_cert(f"*.{_DOMAIN}", _DOMAIN)
    authority.cert_pem.write_to_path(directory / "ca.pem")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(directory / "cert.pem", append=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tls = ("--tls-cert", f"{directory}/cert.pem", "--tls-key", f"{directory}/key.pem")
    return (*tls, "--domain", f"{_DOMAIN}:{port}"), port


def _environment(directory: Path, engine: Engine, port: int) -> Mapping[str, str]:
    (directory / "resolv.conf").write_text(f"nameserver {_NAME_SERVER}\n")
    (directory / "nsswitch.conf").write_text("hosts: files dns\n")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "E2B_DOMAIN": f"{_DOMAIN}:{port}",
        "E2B_API_KEY": (engine.state_dir / "api.key").read_text().strip(),
        "SSL_CERT_FILE": f"{directory}/ca.pem",
        "NODE_EXTRA_CA_CERTS": f"{directory}/ca.pem",
        "PROBE_IMAGE": "debian:12-slim",
    }


async def _python(
    version: str, environment: Mapping[str, str], limit: asyncio.Semaphore
) -> list[Finding]:
    async with limit:
        interpreter = await clients.python(version)
        found = []
        for mode in ("blocking", "async"):
            probes = (str(interpreter), str(_HERE / "python/__main__.py"), mode, *sys.argv[1:])
            found += await _findings(f"Python {version}", probes, environment)
        return found


async def _javascript(
    version: str, environment: Mapping[str, str], limit: asyncio.Semaphore
) -> list[Finding]:
    async with limit:
        modules = await clients.javascript(version)
        probes = (clients.NODE, str(_HERE / "javascript/main.cjs"), *sys.argv[1:])
        return await _findings(
            f"JavaScript {version}", probes, {**environment, "NODE_PATH": str(modules)}
        )


async def _findings(
    version: str, command: Sequence[str], environment: Mapping[str, str]
) -> list[Finding]:
    directory = environment["HOME"]
    replaced = (f"{directory}/resolv.conf", f"{directory}/nsswitch.conf")
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", _AS_THE_CLIENTS_SEE_IT, "sh", *replaced),
        *command,
        env=dict(environment),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the probes of {version} broke off")
    print(f"{version}: done", flush=True)
    return [
        Finding(version, **json.loads(line)) for line in output.splitlines() if line[:1] == b"{"
    ]


sys.exit(asyncio.run(main()))
