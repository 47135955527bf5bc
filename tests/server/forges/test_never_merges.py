"""The server opens, follows and closes pull requests; merging is left to people."""

import re
from pathlib import Path

import sandbox_server
from sandbox_server.forges.adapter import ForgeAdapter

_MERGES = re.compile(
    r"/merge[\"'/?]|/merge$|mergePullRequest|enablePullRequestAutoMerge|merge_when_pipeline_succeeds"
    r"|auto_merge|merge_request\.merge_when",
    re.MULTILINE,
)


def test_no_request_of_the_server_merges_a_pull_request():
    assert not [name for name in dir(ForgeAdapter) if "merge" in name]
    source = Path(sandbox_server.__file__).parent
    modules = [*source.glob("forges/**/*.py"), *source.glob("tasks/**/*.py")]
    assert len(modules) > 50
    found = {module.name: _MERGES.findall(module.read_text()) for module in modules}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_a_request_that_merges_would_be_found():
    for request in ('f"{pull}/merge"', "mutation { mergePullRequest(input: $input) }"):
        assert _MERGES.search(request)
