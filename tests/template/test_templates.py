"""Every template is built, and its sandboxes have what it promises: its capabilities and its programs."""

import pytest

from tests.engine.polling import until
from tests.template import promises
from tests.template.recipe import described

TEMPLATES = described()["templates"]
CHECK = "/opt/sandbox/start-services.sh --check"
SIZE = "du -sxm / 2>/dev/null | cut -f 1"


@pytest.mark.image
@pytest.mark.needs_engine
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(TEMPLATES))
async def test_template__is_built_and_has_what_it_promises(name, built, computer_of):
    with computer_of(built(name)) as computer:
        computer.settle()
        computer.run(CHECK)
        used = await until(lambda: memory_of(computer))
        print(f"{name}: {computer.run(SIZE, user='root').strip()} MB, idles with {used} MiB")
        promises.has_its_programs(computer, name)
        for capability in TEMPLATES[name]["capabilities"]:
            promises.CAPABILITIES[capability](computer)


def test_template__has_a_proof_of_what_it_promises():
    assert promises.PROGRAMS.keys() == TEMPLATES.keys()
    capabilities = {one for template in TEMPLATES.values() for one in template["capabilities"]}
    assert promises.CAPABILITIES.keys() == capabilities


async def memory_of(computer):
    metrics = computer.sandbox.get_metrics()
    return metrics and metrics[-1].mem_used >> 20
