from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from sandbox_engine.records.catalog import Catalog
from sandbox_engine.records.sandbox import SandboxRecord, State
from sandbox_engine.sandboxes.init_process import is_ending
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.new_sandbox import NewSandbox, new_record
from sandbox_engine.sandboxes.warm_pool.attempts import StartAttempts
from sandbox_engine.sandboxes.warm_pool.compatibility import compatibility_key
from sandbox_engine.sandboxes.warm_pool.levels import PoolLevel, share_out
from sandbox_engine.system.errors import EngineError
from sandbox_engine.system.settings import Settings

_LATELY = timedelta(hours=1)
_MOST = 16  # each takes 0.15 ms per evaluation, and every create triggers one


class Inventory:
    """Ready sandboxes and their targets.

    Records tell which sandboxes are ready, so that the next engine finds them too.
    """

    def __init__(
        self, settings: Settings, lifecycle: Lifecycle, *, catalog: Catalog, always: Sequence[str]
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._catalog = catalog
        self._attempts: dict[str, StartAttempts] = {}
        self.demand = Demand(always)
        for record in self.ready():
            self.demand.note(record.template)

    def ready(self) -> list[SandboxRecord]:
        """List all reserved sandboxes, including surplus ones."""
        return [
            record for record in self._lifecycle.records.values() if record.state is State.RESERVED
        ]

    def find(self, wanted: SandboxRecord) -> SandboxRecord | None:
        """Find a ready sandbox that matches the request."""
        kind = compatibility_key(wanted)
        for record in self.ready():
            if compatibility_key(record) == kind and record.init and not is_ending(record.init):
                return record
        return None

    def attempts(self, kind: str) -> StartAttempts:
        """Return the start attempts of this kind."""
        return self._attempts.setdefault(kind, StartAttempts())

    def levels(self) -> list[PoolLevel]:
        """Compute the pool levels of all kinds, ordered by demand."""
        models = {compatibility_key(model): model for model in self._models()}
        ready: dict[str, list[SandboxRecord]] = {kind: [] for kind in models}
        for record in self.ready():
            ready.get(compatibility_key(record), []).append(record)
        levels = [
            PoolLevel(kind, model, self.attempts(kind), ready[kind])
            for kind, model in models.items()
        ]
        self._attempts = {level.kind: level.attempts for level in levels}
        most, memory_mb = self._settings.ready_sandboxes, self._settings.ready_memory_mb
        share_out(levels, each=most, memory_mb=memory_mb)
        return levels

    def _models(self) -> Iterator[SandboxRecord]:
        for reference in self.demand:
            try:
                template = self._catalog.get(reference)
            except EngineError:  # deleted, or its tag was removed
                self.demand.forget(reference)
                continue
            if template.base is None:  # a ready one would copy the snapshot
                request = NewSandbox(template.id, timeout=timedelta(0))
                yield new_record(request, template, settings=self._settings)


class Demand:
    """Templates in demand: recently requested ones, and some `always`."""

    def __init__(self, always: Sequence[str]) -> None:
        self._always = always
        self._asked: dict[str, datetime] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield references: first those always kept, then the most recently requested."""
        since = datetime.now(UTC) - _LATELY
        self._asked = {name: at for name, at in self._asked.items() if at > since}
        asked = list(reversed(self._asked))[:_MOST]
        yield from dict.fromkeys((*self._always, *asked))

    def note(self, reference: str) -> None:
        """Record a request for this template."""
        self._asked.pop(reference, None)  # moves it to the end
        self._asked[reference] = datetime.now(UTC)

    def forget(self, reference: str) -> None:
        """Forget a deleted template."""
        self._asked.pop(reference, None)
