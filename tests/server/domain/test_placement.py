from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendNotFound, InvalidRequest, NoBackend
from sandbox_server.domain.placement import choose, having
from sandbox_server.domain.requests import Defaults, SandboxRequest

OVERFLOW = {"local": None, "cluster": "cloud", "cloud": "cluster", "gpu": "cluster"}
PLAIN = Defaults(template="base")


def placed(*, rules=(), defaults=PLAIN, **asked):
    return choose(SandboxRequest(**asked), defaults=defaults, rules=rules, overflow=OVERFLOW)


def rule(match, **gives):
    return {"match": match, **gives}


def test_placement__the_first_backend_is_the_default():
    place = placed()
    assert place.candidates == ("local",)
    assert place.template == "base"


def test_placement__the_tenants_default_precedes_the_servers():
    assert placed(defaults=Defaults(backend="gpu")).candidates[0] == "gpu"


def test_placement__a_rule_precedes_the_tenants_default():
    rules = [rule({"agent_type": "ci-fix"}, backend="cloud", template="ci", timeout_s=60)]
    place = placed(rules=rules, agent_type="ci-fix", defaults=Defaults(backend="gpu"))
    assert place.candidates[0] == "cloud"
    assert place.template == "ci"
    assert place.defaults.timeout == timedelta(minutes=1)


def test_placement__the_request_precedes_the_rule():
    rules = [rule({"agent_type": "ci-fix"}, backend="cloud", template="ci")]
    place = placed(rules=rules, agent_type="ci-fix", backend="gpu", template="own")
    assert place.candidates == ("gpu",)
    assert place.template == "own"


def test_placement__a_rule_may_name_capabilities_instead_of_a_template():
    rules = [rule({"agent_type": "visual-tester"}, capabilities=["desktop"], timeout_s=60)]
    place = placed(rules=rules, agent_type="visual-tester")
    assert place.wanted == {"desktop"}
    assert place.defaults.timeout == timedelta(minutes=1)
    assert placed(rules=rules, agent_type="visual-tester", template="own").wanted == set()
    asked = placed(rules=rules, agent_type="visual-tester", capabilities=frozenset({"code"}))
    assert asked.wanted == {"code"}


def test_placement__a_rules_template_precedes_default_capabilities():
    defaults = PLAIN.overridden({"capabilities": ["code"]})
    rules = [rule({"agent_type": "ci-fix"}, template="ci")]
    assert placed(defaults=defaults).wanted == {"code"}
    place = placed(rules=rules, agent_type="ci-fix", defaults=defaults)
    assert (place.template, place.wanted) == ("ci", set())


def test_placement__the_section_of_a_capability_precedes_the_default_and_follows_rules():
    defaults = PLAIN.overridden(
        {
            "timeout_s": 60,
            "backend": "local",
            "desktop": {"template": "office", "timeout_s": 120, "backend": "cloud"},
        }
    )
    desktop = frozenset({"desktop"})
    place = placed(defaults=defaults, capabilities=desktop)
    assert (place.configured, place.candidates[0]) == ("office", "cloud")
    assert place.defaults.timeout == timedelta(minutes=2)
    assert placed(defaults=defaults).defaults.timeout == timedelta(minutes=1)
    rules = [rule({"agent_type": "x"}, backend="gpu")]
    ruled = placed(defaults=defaults, rules=rules, agent_type="x", capabilities=desktop)
    assert (ruled.configured, ruled.candidates[0]) == ("office", "gpu")


def test_placement__a_section_is_only_preferred_for_several_capabilities():
    defaults = PLAIN.overridden({"desktop": {"template": "office"}})
    place = placed(defaults=defaults, capabilities=frozenset({"desktop", "code"}))
    assert (place.configured, place.preferred[0]) == (None, "office")


def test_placement__rules_by_template_apply_to_a_selected_template():
    rules = [rule({"template": "desktop"}, backend="gpu", timeout_s=60)]
    request = SandboxRequest(capabilities=frozenset({"desktop"}))
    place = choose(request, defaults=PLAIN, rules=rules, overflow=OVERFLOW, selected="desktop")
    assert (place.template, place.candidates[0]) == ("desktop", "gpu")
    assert place.defaults.timeout == timedelta(minutes=1)


def test_placement__the_first_matching_rule_applies():
    rules = [
        rule({"agent_type": "review"}, backend="gpu"),
        rule({"agent_type": "ci-fix", "template": "own"}, backend="gpu"),
        rule({"agent_type": "ci-fix"}, backend="cloud"),
        rule({}, backend="gpu"),
    ]
    assert placed(rules=rules, agent_type="ci-fix").candidates[0] == "cloud"
    assert placed(rules=rules, agent_type="ci-fix", template="own").candidates[0] == "gpu"


def test_placement__a_rule_without_conditions_matches_everything():
    assert placed(rules=[rule({}, backend="cloud")]).candidates[0] == "cloud"


def test_placement__a_rule_may_replace_the_template():
    rules = [rule({"template": "python"}, template="python-3-13", backend="cloud")]
    place = placed(rules=rules, template="python")
    assert (place.template, place.candidates[0]) == ("python-3-13", "cloud")
    assert placed(rules=rules, template="node").template == "node"


def test_placement__a_rule_matches_the_default_template():
    place = placed(rules=[rule({"template": "base"}, backend="gpu")])
    assert place.candidates[0] == "gpu"


def test_placement__overflow_continues_until_it_would_repeat():
    assert placed(defaults=Defaults(backend="gpu")).candidates == ("gpu", "cluster", "cloud")
    assert placed(defaults=Defaults(backend="cloud")).candidates == ("cloud", "cluster")


def test_placement__a_named_backend_does_not_overflow():
    assert placed(backend="cluster").candidates == ("cluster",)


@pytest.mark.parametrize(
    "said",
    [
        {"backend": "moon"},
        {"defaults": Defaults(backend="moon")},
        {"rules": [rule({}, backend="moon")]},
    ],
)
def test_placement__an_unknown_backend_is_refused(said):
    with pytest.raises(BackendNotFound, match="moon"):
        placed(**said)


def test_placement__a_rules_resources_apply_unless_the_request_has_its_own():
    rules = [rule({}, resources={"cpu_count": 2, "memory_mb": 512})]
    assert placed(rules=rules, resources={"cpu_count": 8}).resources == {
        "cpu_count": 8,
        "memory_mb": 512,
    }


def test_placement__keeps_only_backends_with_the_template_in_order():
    assert having(("gpu", "cluster", "cloud"), ["cloud", "gpu"], template="own") == ("gpu", "cloud")


@pytest.mark.parametrize(("there", "said"), [(["local"], "only at local"), ([], "but nowhere")])
def test_placement__a_template_elsewhere_is_named_in_the_error(there, said):
    with pytest.raises(InvalidRequest, match=said):
        having(("gpu", "cluster"), there, template="own")


def test_placement__without_backends_there_is_none():
    with pytest.raises(NoBackend):
        choose(SandboxRequest(), defaults=Defaults(), rules=[], overflow={})
