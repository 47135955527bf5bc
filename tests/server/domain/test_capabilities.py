import pytest

from sandbox_server.domain.capabilities import (
    DeclaredCapabilities,
    require_capabilities,
    select_template,
)
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.templates import KnownTemplate, Size

DECLARED = DeclaredCapabilities({"desktop": frozenset({"desktop", "gui"})})


def template(name, *capabilities, own=False, ready=("local",), building=(), memory_mb=512):
    return KnownTemplate(
        id=name,
        name=name,
        is_own=own,
        capabilities=frozenset(capabilities),
        sizes={backend: Size(memory_mb=memory_mb) for backend in ready},
        building=frozenset(building),
    )


def select(templates, *wanted, **more):
    return select_template(templates, wanted, **{"candidates": ("local",), **more})


def test_select_template__all_capabilities_are_required():
    templates = [template("browser", "browser", "mcp"), template("desktop", "desktop", "browser")]
    assert select(templates, "browser", "desktop") == "desktop"


def test_select_template__fewest_further_capabilities_then_memory_then_name():
    assert select([template("full", "mcp", "browser"), template("lean", "mcp")], "mcp") == "lean"
    small = template("z-small", "mcp", memory_mb=256)
    assert select([template("large", "mcp"), small], "mcp") == "z-small"
    assert select([template("b", "mcp"), template("a", "mcp")], "mcp") == "a"


def test_select_template__a_shared_template_precedes_the_tenants_own():
    templates = [template("a-mine", "mcp", own=True, memory_mb=128), template("shared", "mcp")]
    assert select(templates, "mcp") == "shared"


def test_select_template__a_ready_template_precedes_one_that_is_being_built():
    built = template("built", "mcp", ready=(), building=["local"])
    assert select([built, template("ready", "mcp", "browser")], "mcp") == "ready"
    assert select([built], "mcp") == "built"


def test_select_template__a_preferred_template_precedes_if_it_has_the_capabilities():
    templates = [template("lean", "mcp"), template("full", "mcp", "browser")]
    assert select(templates, "mcp", preferred=["full"]) == "full"
    assert select(templates, "browser", preferred=["lean"]) == "full"
    assert select(templates, "mcp", preferred=["missing"]) == "lean"


def test_select_template__only_candidate_backends_count():
    templates = [template("here", "mcp", "gui"), template("there", "mcp", ready=["cloud"])]
    assert select(templates, "mcp") == "here"
    with pytest.raises(InvalidRequest) as refused:
        select(templates, "mcp", candidates=["third", "fourth"])
    assert str(refused.value) == (
        "The templates with the capability mcp (here, there) are only at cloud, local, not at third or fourth."
    )


def test_select_template__a_template_whose_builds_failed_is_not_selected():
    with pytest.raises(InvalidRequest, match="are not ready at any backend"):
        select([template("failed", "mcp", ready=())], "mcp")


def test_select_template__an_unavailable_capability_lists_the_available_ones():
    with pytest.raises(InvalidRequest) as refused:
        select([template("agent", "mcp"), template("base")], "desktop", declared=DECLARED)
    assert str(refused.value) == (
        "No template has the capability desktop. Templates with capabilities: agent (mcp). 'desktop' has it and is "
        "bundled with the server, but not built: `sandbox-server template build desktop`."
    )
    with pytest.raises(InvalidRequest) as refused:
        select([template("base")], "gpu", "code", declared=DECLARED)
    assert str(refused.value) == "No template has the capabilities code, gpu."


def test_require_capabilities__a_contradiction_is_refused():
    require_capabilities("agent", {"mcp"}, {"mcp"})
    with pytest.raises(InvalidRequest) as refused:
        require_capabilities("agent", {"mcp"}, {"mcp", "desktop"})
    assert str(refused.value) == (
        "The template 'agent' does not have the capability desktop. It has: mcp. "
        "Omit `template` to select one by `capabilities`."
    )
