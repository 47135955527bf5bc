"""What users of `make run` get: the documents and all interfaces to files, in sandboxes of the real template `agent`.

Building that template takes minutes, so `make proofs` runs these. `test_documents` runs the documents on `base`.
"""

import secrets
import shutil

import pytest

from sandbox_client import SandboxClient
from sandbox_client.langchain import basic_tools, mcp_tools
from tests.docs.blocks import REPOSITORY
from tests.docs.build_cache import kept_build_cache
from tests.docs.running import run_document
from tests.docs.test_documents import HERE
from tests.server.support.server_process import server_process

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first run builds the template
]

LONGEST_BUILD_S = 800
DOCUMENTS = [*HERE, REPOSITORY / "docs/sbx.md"]


@pytest.fixture(scope="module")
def server():
    """Start a server that builds `agent` by itself, as `make run` does, and wait until that is the default."""
    with server_process(variables={"SANDBOX_SERVER_AGENT_TEMPLATE": "true"}) as server:
        server.state_dir.mkdir(mode=0o755)
        server.engine_dir.mkdir(mode=0o700)
        with kept_build_cache(server.engine_dir):
            server.start()
            with (
                SandboxClient(server.url, server.admin_key) as client,
                client.create_sandbox(template="agent", wait_s=LONGEST_BUILD_S),
            ):
                pass
        yield server


@pytest.fixture(scope="module")
def client(server):
    with SandboxClient(server.url, server.admin_key) as client:
        yield client


@pytest.fixture(scope="module")
def elsewhere(client):
    """Build a template from `agent` that has another working directory."""
    name = f"elsewhere-{secrets.token_hex(4)}"
    client.create_template(name, from_template="agent", steps=[{"workdir": "/srv/app"}])
    return name


@pytest.fixture(
    params=[(None, "/workspace"), ("elsewhere", "/srv/app")], ids=["agent", "made from agent"]
)
def place(request, client):
    """Make a sandbox of the default template, or of the one made from it; gives also where commands start."""
    template, directory = request.param
    chosen = {} if template is None else {"template": request.getfixturevalue(template)}
    with client.create_sandbox(**chosen) as sandbox:
        yield sandbox, directory


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq here")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_documents__commands_for_the_default_template_work(server, document, tmp_path):
    done = run_document(document, server, directory=tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_documents__examples_use_the_template_agent(client):
    with client.create_sandbox() as sandbox:
        assert sandbox.record.template == "agent"
        assert sandbox.record.template_note is None


def test_documents__all_tools_use_the_same_files(place):
    sandbox, directory = place
    own = {tool.name: tool for tool in basic_tools(sandbox)}
    served = {tool.name: tool for tool in mcp_tools(sandbox)}
    sandbox.files.write("by-client", "client")
    own["write_file"].invoke({"path": "by-langchain", "content": "langchain"})
    served["write_file"].invoke({"path": "by-mcp", "content": "mcp"})
    line = "pwd; cat by-client by-langchain by-mcp"
    expected = f"{directory}\nclientlangchainmcp"
    assert sandbox.run(line, check=True).stdout == expected
    assert expected in served["run_command"].invoke({"command": line})
    assert sandbox.files.read_text("by-mcp") == "mcp"
    assert "langchain" in served["read_file"].invoke({"path": "by-langchain"})
    as_root = sandbox.run("pwd; cat by-client by-langchain by-mcp", user="root", check=True)
    assert as_root.stdout == expected
    assert sandbox.files.as_user("root").read_text("by-client") == "client"
