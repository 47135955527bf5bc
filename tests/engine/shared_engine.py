from pathlib import Path

from tests.engine.engine_process import EngineProcess
from tests.run_services import Said


class SharedEngine(EngineProcess):
    """The engine of a test run, which no test may stop."""

    def __init__(self, said: Said) -> None:
        self.state_dir = Path(said["state_dir"])
        self.url = said["url"]
        self._pid = int(said["pid"])

    @property
    def pid(self) -> int:
        return self._pid

    def start(self, *flags: str) -> None:
        raise AssertionError("The run's engine is shared: start one with running_engine().")

    def stop(self) -> int:
        raise AssertionError("The run's engine is shared: stop one of the test's own.")

    def kill(self) -> None:
        raise AssertionError("The run's engine is shared: kill one of the test's own.")
