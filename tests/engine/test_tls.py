import asyncio
import os
import socket
import sys

import httpx
import pytest
import trustme

from tests.engine.engine_process import REPOSITORY, running_engine
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

NAME = "sandboxes.test"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Make a certificate authority and a wildcard certificate of the domain."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert(f"*.{NAME}", NAME)
    authority.cert_pem.write_to_path(directory / "ca.pem")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(directory / "cert.pem", append=True)
    return directory


@pytest.fixture(scope="module")
def tls_engine(authority):
    """Run an engine that serves TLS under a domain."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = [
        *("--tls-cert", f"{authority}/cert.pem", "--tls-key", f"{authority}/key.pem"),
        *("--domain", f"{NAME}:{port}", "--pool-size", "1"),
    ]
    with running_engine(*flags, port=port) as engine:
        yield engine


@pytest.fixture
def resolve(tls_engine, authority, tmp_path):
    """Run the client with nothing but the domain, a key, and names that resolve."""

    async def run(*arguments, names):
        hosts = tmp_path / "hosts"
        hosts.write_text("".join(f"127.0.0.1 {name}.{NAME}\n" for name in names))
        client = " ".join((sys.executable, "-m", "tests.engine.tls_client", *arguments))
        process = await asyncio.create_subprocess_exec(
            "unshare", "--mount", "sh", "-c", f"mount --bind {hosts} /etc/hosts && exec {client}",
            env={
                "PATH": os.environ["PATH"],
                "E2B_DOMAIN": f"{NAME}:{tls_engine.port}",
                "E2B_API_KEY": tls_engine.api_key,
                "SSL_CERT_FILE": f"{authority}/ca.pem",
            },
            cwd=REPOSITORY,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, error = await process.communicate()
        assert process.returncode == 0, error.decode()
        return said.decode().splitlines()

    return run


async def test_tls__sdk_needs_only_the_domain(tls_engine, resolve):
    [sandbox_id] = await resolve(names=["api"])
    greeting, host, url = await resolve(sandbox_id, names=["api", f"49983-{sandbox_id}"])
    assert greeting == "over TLS"
    assert host == f"8000-{sandbox_id}.{NAME}:{tls_engine.port}"
    assert url.startswith(f"https://49983-{sandbox_id}.{NAME}:{tls_engine.port}/files?")

    address = f"https://127.0.0.1:{tls_engine.port}"
    async with httpx.AsyncClient(verify=False, timeout=60) as browser:

        async def page():
            answer = await browser.get(f"{address}/page.html", headers={"Host": host})
            return answer if answer.status_code == 200 else None

        assert (await until(page)).text == "served over TLS"
        path = url.partition(f":{tls_engine.port}")[2]
        signed = await browser.get(
            f"{address}{path}", headers={"Host": f"49983-{sandbox_id}.{NAME}:{tls_engine.port}"}
        )
        assert signed.text == "served over TLS"
