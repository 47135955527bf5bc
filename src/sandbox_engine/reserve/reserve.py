import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from sandbox_engine.capacity import MachineFull
from sandbox_engine.catalog import Catalog
from sandbox_engine.errors import SandboxNotFound, StartFailed, TemplateNotFound
from sandbox_engine.init import is_ending
from sandbox_engine.lifecycle import Lifecycle
from sandbox_engine.log import get_logger
from sandbox_engine.new_sandbox import NewSandbox, new_record
from sandbox_engine.records import SandboxRecord, State
from sandbox_engine.reserve.attempts import Attempts
from sandbox_engine.reserve.demand import Demand
from sandbox_engine.reserve.kind import hand_over, kind_of
from sandbox_engine.reserve.shelf import Shelf, share_out
from sandbox_engine.settings import Settings

log = get_logger(__name__)

# Nobody tells of a template that was built anew, nor of a ready sandbox that ended.
_LOOK_AGAIN = timedelta(seconds=10)
# Where creates never cease, a ready sandbox takes work off them all the same.
_PATIENCE = timedelta(seconds=10)


class Reserve:
    """Ready sandboxes of the templates in demand, handed out by create and made up for afterwards.

    The records tell which sandboxes are ready, so that the next engine finds them too.
    """

    def __init__(
        self, settings: Settings, lifecycle: Lifecycle, *, catalog: Catalog, always: str
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._catalog = catalog
        self._demand = Demand(always)
        self._attempts: dict[str, Attempts] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._cold_creates = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        for record in self._reserved():
            self._demand.note(record.template)

    async def create(self, wanted: SandboxRecord, *, reference: str) -> SandboxRecord:
        """Hand out a ready sandbox, or start one where none of its kind is ready."""
        self._demand.note(reference)
        try:
            return self._claim(wanted) or await self._create(wanted)
        finally:
            self._changed.set()

    def shelves(self) -> list[Shelf]:
        """Tell what is ready and what should be, the kind asked for last first."""
        shelves: dict[str, Shelf] = {}
        for model in self._models():
            kind = kind_of(model)
            attempts = self._attempts.setdefault(kind, Attempts())
            shelves.setdefault(kind, Shelf(kind, model, attempts))
        for record in self._reserved():
            if (shelf := shelves.get(kind_of(record))) is not None:
                shelf.ready.append(record)
        most, memory_mb = self._settings.ready_sandboxes, self._settings.ready_memory_mb
        share_out(shelves.values(), each=most, memory_mb=memory_mb)
        return list(shelves.values())

    async def run(self) -> None:
        """Keep as many ready as are wanted, until cancelled."""
        try:
            while True:
                self._changed.clear()
                self._settle()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds_to_next()):
                        await self._changed.wait()
        finally:
            for task in self._at_work.values():
                task.cancel()

    def _claim(self, wanted: SandboxRecord) -> SandboxRecord | None:
        # Nothing is awaited here, so no two creates get the same one.
        kind = kind_of(wanted)
        for record in self._reserved():
            if kind_of(record) == kind and record.init and not is_ending(record.init):
                hand_over(record, wanted)
                self._lifecycle.hand_out(record)
                return record
        return None

    async def _create(self, wanted: SandboxRecord) -> SandboxRecord:
        attempts = self._attempts.setdefault(kind_of(wanted), Attempts())
        try:
            await self._create_giving_way(wanted)
        except StartFailed as error:
            attempts.fail(str(error))
            raise
        attempts.succeed()
        return wanted

    async def _create_giving_way(self, wanted: SandboxRecord) -> None:
        """Start a sandbox; where the machine has no room, ready ones go first."""
        with self._disturbing():
            while True:
                try:
                    return await self._lifecycle.create(wanted)
                except MachineFull:
                    if not (idle := self._reserved()):
                        raise
                await self._discard(idle[0])

    def _settle(self) -> None:
        """Start what brings the ready ones closer to the wanted ones."""
        shelves = self.shelves()
        kept = {record.id for shelf in shelves for record in shelf.ready[: shelf.wanted]}
        for record in self._reserved():
            if record.id not in kept:
                self._work(record.id, self._discard(record))
        for shelf in shelves:
            if shelf.is_to_be_filled:
                self._work(shelf.kind, self._make(shelf))
        self._attempts = {shelf.kind: shelf.attempts for shelf in shelves}

    def _work(self, key: str, work: Coroutine[None, None, None]) -> None:
        if key in self._at_work:
            work.close()
            return
        task = asyncio.create_task(work)
        self._at_work[key] = task
        task.add_done_callback(lambda _: self._rest(key))

    def _rest(self, key: str) -> None:
        del self._at_work[key]
        self._changed.set()

    async def _make(self, shelf: Shelf) -> None:
        shelf.attempts.begin()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                await self._quiet.wait()
        try:
            await self._lifecycle.reserve(shelf.model)
        except MachineFull as error:  # no fault of the template's
            log.info("no room to make one ready", template=shelf.model.template, error=error)
            shelf.attempts.postpone(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, creates get it themselves
            shelf.attempts.fail(str(error))
            if shelf.attempts.is_given_up:
                log.error("no more made ready", template=shelf.model.template, error=error)
        else:
            shelf.attempts.succeed()

    async def _discard(self, record: SandboxRecord) -> None:
        with suppress(SandboxNotFound):
            async with self._lifecycle.transition(record.id):
                if record.state is State.RESERVED:
                    await self._lifecycle.kill(record, "not wanted ready any more")

    def _reserved(self) -> list[SandboxRecord]:
        return [one for one in self._lifecycle.records.values() if one.state is State.RESERVED]

    def _models(self) -> Iterator[SandboxRecord]:
        for reference in self._demand:
            try:
                template = self._catalog.get(reference)
            except TemplateNotFound:
                self._demand.forget(reference)
                continue
            if template.base is None:  # a ready one of a snapshot would hold a copy of its files
                request = NewSandbox(template.id, timeout=timedelta(0))
                yield new_record(request, template, settings=self._settings)

    @contextmanager
    def _disturbing(self) -> Iterator[None]:
        self._cold_creates += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._cold_creates -= 1
            if self._cold_creates == 0:
                self._quiet.set()

    def _seconds_to_next(self) -> float:
        due = (attempts.next_try for attempts in self._attempts.values())
        soonest = min((at for at in due if at is not None), default=None)
        if soonest is None:
            return _LOOK_AGAIN.total_seconds()
        left = max(timedelta(0), soonest - datetime.now(UTC))
        return min(left, _LOOK_AGAIN).total_seconds()
