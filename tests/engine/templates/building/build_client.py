"""Builds templates as users do, and keeps what the builds say."""

import secrets
from contextlib import contextmanager

import pytest
from e2b import BuildException, Template

from tests.engine.engine_process import EngineProcess

_SANDBOX_ENDED = "the build has ended"


class Builds:
    """The builds of one engine."""

    def __init__(self, engine: EngineProcess) -> None:
        self.engine = engine
        self.said: list[str] = []

    def build(self, template, name: str | None = None) -> str:
        """Build the template under a name, made up if none is given."""
        name = name or f"t-{secrets.token_hex(6)}"
        self.said = []
        Template.build(
            template,
            name,
            on_build_logs=lambda entry: self.said.append(entry.message),
            **self.engine.options,
        )
        return name

    def fail(self, template) -> BuildException:
        """Build a template that cannot be built; gives what the SDK raises."""
        with pytest.raises(BuildException) as failure:
            self.build(template)
        return failure.value

    @property
    def cached_steps(self) -> int:
        """How many steps of the last build were there already."""
        return sum(line.startswith("CACHED [builder") for line in self.said)

    @contextmanager
    def without_sandboxes(self):
        """Require that no build needs a sandbox meanwhile."""
        before = self.engine.log.count(_SANDBOX_ENDED)
        yield
        assert self.engine.log.count(_SANDBOX_ENDED) == before
