"""Every template is built, and its sandboxes have what it promises: its capabilities and its programs."""

import time

import pytest

from tests.template import promises
from tests.template.recipe import described

TEMPLATES = described()["templates"]
CHECK = "/opt/sandbox/start-services.sh --check"
SIZE = "du -sm --exclude=/proc --exclude=/sys / 2>/dev/null | cut -f 1"


@pytest.mark.image
@pytest.mark.needs_engine
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_template__is_built_and_has_what_it_promises(name, built, computer_of):
    with computer_of(built(name)) as computer:
        computer.settle()
        computer.run(CHECK)
        print(f"{name}: {computer.run(SIZE, user='root').strip()} MB, {memory(computer)} MiB idle")
        promises.has_its_programs(computer, name)
        for capability in TEMPLATES[name]["capabilities"]:
            promises.CAPABILITIES[capability](computer)


def test_template__has_a_proof_of_what_it_promises():
    assert promises.PROGRAMS.keys() == TEMPLATES.keys()
    capabilities = {one for template in TEMPLATES.values() for one in template["capabilities"]}
    assert promises.CAPABILITIES.keys() == capabilities


def memory(computer):
    while not (metrics := computer.sandbox.get_metrics()):
        time.sleep(0.1)
    return metrics[-1].mem_used >> 20
