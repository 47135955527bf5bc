"""Where a sandbox may live: what its request says goes before its tenant's rule, which goes before the tenant's defaults.

A rule is `{"match": {"agent_type": …, "template": …}, …}`; the first that matches is taken, and what else it says counts as
defaults do: backend, template, timeout_s and so on. A rule that matches a template by name may give another in its place.
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
    """What a sandbox is made from, where it may live, best first, and what holds where its request is silent."""

    template: str
    template_id: str | None = None
    """Where that is the name of one of the tenant's own."""
    candidates: tuple[str, ...] = ()
    defaults: Defaults
    resources: Mapping[str, Any] = field(default_factory=dict)
    has_services: bool = False
    meanwhile: str | None = None
    """Which template to take where nobody has named this one and it is not ready."""
    template_note: str | None = None
    awaited_template_id: str | None = None
    """What has to be built before there are candidates: some of the backends that are awaited."""
    awaited_backends: tuple[str, ...] = ()


def choose(
    asked: SandboxRequest,
    *,
    defaults: Defaults,
    rules: Sequence[Rule],
    overflow: Mapping[str, str | None],
) -> PlacementDecision:
    """Find the backends that may have it; `overflow` names all there are, the usual one first, and where each overflows to."""
    if not overflow:
        raise NoBackend
    rule = find_rule(rules, asked, template=asked.template or defaults.template)
    settled = defaults.overridden(rule)
    renamed = "template" in rule.get("match", {}) and "template" in rule
    if asked.backend is not None:  # who names one wants that one
        candidates: tuple[str, ...] = (_known(asked.backend, overflow),)
    else:
        candidates = _chain(settled.backend or next(iter(overflow)), overflow)
    return PlacementDecision(
        template=settled.template if renamed or not asked.template else asked.template,
        candidates=candidates,
        defaults=settled,
        resources={**rule.get("resources", {}), **asked.resources},
        meanwhile=None if asked.template else settled.meanwhile,
    )


def find_rule(rules: Sequence[Rule], asked: SandboxRequest, *, template: str) -> Rule:
    """Find the first rule whose conditions all hold; none at all is no rule."""
    facts = {"agent_type": asked.agent_type, "template": template.lower()}
    for rule in rules:
        conditions = dict(rule.get("match", {}))
        if "template" in conditions:
            conditions["template"] = str(conditions["template"]).lower()
        if all(facts.get(name) == wanted for name, wanted in conditions.items()):
            return rule
    return {}


def of_template(place: PlacementDecision, known: KnownTemplate) -> PlacementDecision:
    """Leave the backends that have the template, and of those the ones at which it is large enough.

    Where none of them has it and it is being built at one, they are awaited.
    """
    place = replace(
        place, template_id=known.id if known.is_own else None, has_services=known.has_services
    )
    if not is_ready(place, known) and not known.building.isdisjoint(place.candidates):
        return replace(
            place,
            candidates=(),
            awaited_template_id=known.id,
            awaited_backends=place.candidates,
        )
    if not known.sizes:
        raise InvalidRequest(
            f"The template {place.template!r} is not ready at any backend; its builds give the reason."
        )
    there = having(place.candidates, list(known.sizes), template=place.template)
    fitting = tuple(name for name in there if not known.sizes[name].lacks(place.resources))
    if not fitting:
        raise InvalidRequest(
            f"Sandboxes of the template {place.template!r} have {_said(known.sizes[there[0]])}, which is "
            "less than requested. Build a template of the requested size and use that."
        )
    sizes = {known.sizes[name] for name in fitting}
    alike = sizes.pop().document() if len(sizes) == 1 else {}
    return replace(
        place,
        candidates=fitting,
        resources={**place.resources, **alike},
    )


def is_ready(place: PlacementDecision, known: KnownTemplate) -> bool:
    """Tell whether the template is, or may be, at a backend that is considered."""
    return any(name in known.sizes for name in place.candidates)


def having(candidates: Sequence[str], places: Sequence[str], *, template: str) -> tuple[str, ...]:
    """Leave those of the candidates at which the template is."""
    left = tuple(name for name in candidates if name in places)
    if not left:
        there = f"only at {', '.join(sorted(places))}" if places else "nowhere"
        raise InvalidRequest(
            f"The template {template!r} is not available at {' or '.join(candidates)}, but {there}."
        )
    return left


def _said(size: Size) -> str:
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
