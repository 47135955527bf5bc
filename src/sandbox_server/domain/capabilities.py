"""Capabilities of templates: what the sandboxes of a template offer, by name.

Those of the bundled templates: `code` (interpreter on port 49999), `desktop` (desktop service), `gui` (an X display), `browser`
(Chromium with CDP) and `mcp` (tool server). Operators and tenants may declare others for their own templates.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.templates import KnownTemplate

NAME = "^[a-z][a-z0-9-]{0,31}$"

CODE = "code"
DESKTOP = "desktop"
GUI = "gui"
BROWSER = "browser"
MCP = "mcp"

# E2B's public templates of these names have no services of ours.
_PUBLIC = {"code-interpreter-v1": frozenset({CODE}), "desktop": frozenset({GUI})}


@dataclass(frozen=True)
class DeclaredCapabilities:
    """Capabilities of shared templates, by name: of the bundled ones, and those in the settings of backends."""

    bundled: Mapping[str, frozenset[str]] = field(default_factory=dict)
    settings: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of(self, template: str, *, is_public: bool = False) -> frozenset[str]:
        """Return the capabilities of a shared template, or of a public one of a provider; the settings take precedence."""
        if template in self.settings:
            return self.settings[template]
        if is_public and template in _PUBLIC:
            return _PUBLIC[template]
        return self.bundled.get(template, frozenset())

    def has_services(self, template: str, *, is_public: bool = False) -> bool:
        """Return whether it is a bundled template, whose services read a settings file."""
        return template in self.bundled and not (is_public and template in _PUBLIC)


NOTHING_DECLARED = DeclaredCapabilities()


def select_template(
    templates: Sequence[KnownTemplate],
    wanted: Collection[str],
    *,
    candidates: Collection[str],
    preferred: Sequence[str] = (),
    declared: DeclaredCapabilities = NOTHING_DECLARED,
) -> str:
    """Select a template that has the capabilities at a candidate backend.

    A preferred one precedes the others; of these, usable ones precede those that are being built. Then the one with the fewest
    further capabilities, the smallest memory and the first name is selected, a shared one before the tenant's own.
    """
    having = [template for template in templates if template.capabilities.issuperset(wanted)]
    if not having:
        raise InvalidRequest(_none_has(templates, wanted, declared))
    available = [template for template in having if _is_at(template, candidates)]
    if not available:
        raise InvalidRequest(_elsewhere(having, wanted, candidates, declared))
    by_name = {template.name: template for template in available}
    for name in preferred:
        if name in by_name:
            return name
    return min(available, key=lambda template: _rank(template, candidates)).name


def require_capabilities(
    template: str, available: Collection[str], wanted: Collection[str]
) -> None:
    """Refuse a template that lacks requested capabilities."""
    missing = set(wanted) - set(available)
    if missing:
        raise InvalidRequest(
            f"The template {template!r} does not have {_capabilities(missing)}. It has: {_list(available)}. "
            "Omit `template` to select one by `capabilities`."
        )


def _is_at(template: KnownTemplate, candidates: Collection[str]) -> bool:
    return not (template.sizes.keys() | template.building).isdisjoint(candidates)


def _rank(template: KnownTemplate, candidates: Collection[str]) -> tuple[bool, int, bool, int, str]:
    there = [size.memory_mb or 0 for name, size in template.sizes.items() if name in candidates]
    return (
        not there,
        len(template.capabilities),
        template.is_own,
        min(there, default=0),
        template.name,
    )


def _none_has(
    templates: Sequence[KnownTemplate], wanted: Collection[str], declared: DeclaredCapabilities
) -> str:
    said = f"No template has {_capabilities(wanted)}."
    known = {template.name for template in templates}
    offered = [
        f"{each.name} ({_list(each.capabilities)})" for each in templates if each.capabilities
    ]
    if offered:
        said += f" Templates with capabilities: {', '.join(sorted(offered))}."
    unbuilt = [
        name
        for name, capabilities in sorted(declared.bundled.items())
        if name not in known and capabilities.issuperset(wanted)
    ]
    if unbuilt:
        has = f"has {'it' if len(set(wanted)) == 1 else 'them'} and"
        said += f" {unbuilt[0]!r} {has} {_how_to_build(unbuilt[0])}"
    return said


def _how_to_build(name: str) -> str:
    return f"is bundled with the server, but not built: `sandbox-server template build {name}`."


def _elsewhere(
    having: Sequence[KnownTemplate],
    wanted: Collection[str],
    candidates: Collection[str],
    declared: DeclaredCapabilities,
) -> str:
    names = ", ".join(sorted(template.name for template in having))
    places = sorted({name for template in having for name in (*template.sizes, *template.building)})
    where = f"only at {', '.join(places)}" if places else "not ready at any backend"
    said = (
        f"The templates with {_capabilities(wanted)} ({names}) are {where}, "
        f"not at {' or '.join(candidates)}."
    )
    bundled = next((each.name for each in having if each.name in declared.bundled), None)
    if not places and bundled is not None:
        said += f" {bundled!r} {_how_to_build(bundled)}"
    return said


def _capabilities(names: Collection[str]) -> str:
    return f"the {'capability' if len(set(names)) == 1 else 'capabilities'} {_list(names)}"


def _list(capabilities: Collection[str]) -> str:
    return ", ".join(sorted(capabilities)) or "none"
