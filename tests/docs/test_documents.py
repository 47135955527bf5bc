"""Every command of the README and the documents, run in their order on a server that was started as users start one."""

import re
import shutil

import pytest

from tests.docs.blocks import REPOSITORY, RUN, blocks_of, documents
from tests.docs.running import run_document
from tests.server.support.server_process import server_process

ELSEWHERE = {
    "operations.md",
    "containers.md",
    "api.md",
    "sbx.md",
    "ci.md",
}  # have tests of their own
HERE = [document for document in documents() if document.name not in ELSEWHERE]


@pytest.fixture(scope="module")
def server():
    with server_process() as server:
        server.start()
        yield server


@pytest.mark.needs_engine
@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq here")
@pytest.mark.parametrize("document", HERE, ids=lambda document: document.name)
def test_documents__commands_work(server, document, tmp_path):
    done = run_document(document, server, directory=tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", documents(), ids=lambda document: document.name)
def test_documents__links_lead_somewhere(document):
    for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / link).exists(), link


def test_documents__unexecuted_code_has_a_reason():
    for document in documents():
        for block in blocks_of(document):
            assert block.language not in RUN or block.reason != "", document.name


def test_readme__is_short():
    assert len((REPOSITORY / "README.md").read_text().splitlines()) < 200
