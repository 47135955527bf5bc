"""Valid and invalid requests are answered as the OpenAPI document describes."""

import os

import pytest

from tests.server.reference.schema_proof import run_schemathesis
from tests.server.support.server_process import server_process

pytestmark = pytest.mark.needs_engine

SEED = os.environ.get("SCHEMA_PROOF_SEED", "1")
SECONDS = os.environ.get("SCHEMA_PROOF_S", "300")


@pytest.fixture(scope="module")
def server():
    with server_process("--capacity", "20") as server:
        server.start()
        yield server


@pytest.mark.slow  # exhaustive: each edge value of each field
def test_openapi__edge_values_of_every_field_are_answered_as_described(server, tmp_path):
    found = run_schemathesis(
        server.url, server.admin_key, tmp_path, "--seed", SEED, "--phases", "coverage"
    )
    assert found is None, found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_openapi__random_requests_and_chains_are_answered_as_described(server, tmp_path):
    phases = ("--phases", "fuzzing,stateful", "--max-time", SECONDS)
    found = run_schemathesis(server.url, server.admin_key, tmp_path, "--seed", SEED, *phases)
    assert found is None, found
    assert "request failed" not in server.log
