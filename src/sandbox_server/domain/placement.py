"""Candidate backends and defaults of a sandbox: the request overrides the tenant's rule, the rule the tenant's defaults.

A rule is `{"match": {"agent_type": …, "template": …}, …}`. The first match applies; its other fields are defaults: backend,
template, timeout_s and so on. A rule that matches a template by name may replace it by another one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox_server.domain.errors import BackendNotFound, InvalidRequest, NoBackend
from sandbox_server.domain.requests import Defaults, SandboxRequest
from sandbox_server.domain.templates import KnownTemplate, Size

Rule = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PlacementDecision:
    """The template of a sandbox, its candidate backends in order of preference, and the defaults that apply."""

    template: str
    template_id: str | None = None
    """Set if the template is one of the tenant's own."""
    candidates: tuple[str, ...] = ()
    defaults: Defaults
    wanted: frozenset[str] = frozenset()
    """Capabilities that the template must have."""
    configured: str | None = None
    """The template that the tenant's configuration names for the wanted capability."""
    preferred: tuple[str, ...] = ()
    """Templates to select first by capability."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    has_services: bool = False
    capabilities: frozenset[str] = frozenset()
    meanwhile: str | None = None
    """The template to use while a default template is not ready."""
    template_note: str | None = None
    awaited_template_id: str | None = None
    """A template that is being built at some of the awaited backends; until then there are no candidates."""
    awaited_backends: tuple[str, ...] = ()


def choose(
    request: SandboxRequest,
    *,
    defaults: Defaults,
    rules: Sequence[Rule],
    overflow: Mapping[str, str | None],
    selected: str | None = None,
) -> PlacementDecision:
    """Find the candidate backends; `overflow` maps every backend, the default first, to where it overflows.

    `selected` is the template that was selected by the wanted capabilities.
    """
    if not overflow:
        raise NoBackend
    named = request.template or selected
    rule = find_rule(rules, request, template=named or defaults.template)
    wanted = request.capabilities
    if not wanted and request.template is None:
        wanted = defaults.overridden(rule).capabilities
    section = {} if request.template else defaults.section(wanted)
    if request.section is not None:
        section = defaults.section({request.section})
    effective = defaults.overridden(section).overridden(rule)
    is_configured = len(wanted) == 1 and "template" in section and "template" not in rule
    renamed = "template" in rule.get("match", {}) and "template" in rule
    if request.backend is not None:  # an explicit backend does not overflow
        candidates: tuple[str, ...] = (_known(request.backend, overflow),)
    else:
        candidates = _chain(effective.backend or next(iter(overflow)), overflow)
    return PlacementDecision(
        template=effective.template if renamed or not named else named,
        candidates=candidates,
        defaults=effective,
        resources={**rule.get("resources", {}), **request.resources},
        wanted=wanted,
        configured=effective.template if is_configured else None,
        preferred=(effective.template, section.get("template", defaults.template)),
        meanwhile=None if named else effective.meanwhile,
    )


def find_rule(rules: Sequence[Rule], request: SandboxRequest, *, template: str) -> Rule:
    """Find the first matching rule, or an empty one."""
    facts = {"agent_type": request.agent_type, "template": template.lower()}
    for rule in rules:
        conditions = dict(rule.get("match", {}))
        if "template" in conditions:
            conditions["template"] = str(conditions["template"]).lower()
        if all(facts.get(name) == wanted for name, wanted in conditions.items()):
            return rule
    return {}


def of_template(decision: PlacementDecision, known: KnownTemplate) -> PlacementDecision:
    """Keep the candidates that have the template in the requested size.

    If none has it and one is building it, the candidates are awaited.
    """
    decision = replace(
        decision,
        template_id=known.id if known.is_own else None,
        has_services=known.has_services,
        capabilities=known.capabilities,
    )
    if not is_ready(decision, known) and not known.building.isdisjoint(decision.candidates):
        return replace(
            decision,
            candidates=(),
            awaited_template_id=known.id,
            awaited_backends=decision.candidates,
        )
    if not known.sizes:
        raise InvalidRequest(
            f"The template {decision.template!r} is not ready at any backend; its builds give the reason."
        )
    having_it = having(decision.candidates, list(known.sizes), template=decision.template)
    fitting = tuple(name for name in having_it if not known.sizes[name].lacks(decision.resources))
    if not fitting:
        raise InvalidRequest(
            f"Sandboxes of the template {decision.template!r} have {_format_size(known.sizes[having_it[0]])}, which is "
            "less than requested. Build a template of the requested size and use that."
        )
    sizes = {known.sizes[name] for name in fitting}
    alike = sizes.pop().document() if len(sizes) == 1 else {}
    return replace(
        decision,
        candidates=fitting,
        resources={**decision.resources, **alike},
    )


def at_able(
    decision: PlacementDecision,
    request: SandboxRequest,
    limited: Mapping[str, frozenset[str]],
) -> PlacementDecision:
    """Keep the candidates whose sandboxes can have what is requested.

    `limited` has the only capabilities that sandboxes of some backends can have. Such a backend is a candidate only of requests
    by capability, requests for browser sessions and requests that name the backend.
    """
    if limited.keys().isdisjoint(decision.candidates):
        return decision
    needs = request.needs | decision.wanted
    is_meant = bool(decision.wanted or request.section_template or request.backend)
    able = tuple(
        name
        for name in decision.candidates
        if name not in limited or (is_meant and needs <= limited[name])
    )
    if not able:
        raise InvalidRequest(_nowhere(decision, limited, needs))
    return replace(decision, candidates=able)


def _nowhere(
    decision: PlacementDecision, limited: Mapping[str, frozenset[str]], needs: frozenset[str]
) -> str:
    offered = frozenset[str]().union(*(limited[name] for name in decision.candidates))
    said = f"Sandboxes at {' or '.join(decision.candidates)} have {', '.join(sorted(offered))} only"
    if missing := needs - offered:
        return f"{said}, not {', '.join(sorted(missing))}, which the request needs."
    return f"{said}. Name the capability in the request: `capabilities`."


def with_limits(
    decision: PlacementDecision, limited: Mapping[str, frozenset[str]]
) -> PlacementDecision:
    """Leave out capabilities that the sandbox does not have at each of its candidates."""
    for name in decision.candidates or decision.awaited_backends:
        if name in limited:
            decision = replace(decision, capabilities=decision.capabilities & limited[name])
    return decision


def is_ready(decision: PlacementDecision, known: KnownTemplate) -> bool:
    """Whether any candidate has the template."""
    return any(name in known.sizes for name in decision.candidates)


def having(
    candidates: Sequence[str], available: Sequence[str], *, template: str
) -> tuple[str, ...]:
    """Keep the candidates that have the template."""
    left = tuple(name for name in candidates if name in available)
    if not left:
        having_it = f"only at {', '.join(sorted(available))}" if available else "nowhere"
        raise InvalidRequest(
            f"The template {template!r} is not available at {' or '.join(candidates)}, but {having_it}."
        )
    return left


def _format_size(size: Size) -> str:
    cpu_count = "any number of" if size.cpu_count is None else size.cpu_count
    memory = "any" if size.memory_mb is None else f"{size.memory_mb} MB of"
    return f"{cpu_count} CPUs and {memory} memory"


def _chain(first: str, overflow: Mapping[str, str | None]) -> tuple[str, ...]:
    chain = [_known(first, overflow)]
    while (following := overflow[chain[-1]]) is not None and following not in chain:
        chain.append(following)
    return tuple(chain)


def _known(name: str, overflow: Mapping[str, str | None]) -> str:
    if name not in overflow:
        raise BackendNotFound(name)
    return name
