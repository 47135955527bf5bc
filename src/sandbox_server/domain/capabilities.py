"""Capabilities of templates: what the sandboxes of a template offer, by name.

Those of the bundled templates: `code` (interpreter on port 49999), `desktop` (desktop service), `gui` (an X display), `browser`
(Chromium with CDP) and `mcp` (tool server). Operators and tenants may declare others for their own templates.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

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


def in_words(capabilities: Collection[str]) -> str:
    return ", ".join(sorted(capabilities)) or "none"
