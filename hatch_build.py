import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface[Any]):
    """Adds the web interface and third-party files of the pages to what is built, if npm's registry answers."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        if version == "editable":  # scripts/install does it
            return
        for program in (["scripts/vendor"], ["scripts/web", "build"]):
            done = subprocess.run([*program, sys.executable], cwd=self.root, check=False)  # noqa: S603 - our own
            if done.returncode != 0:
                self.app.display_warning(f"{program[0]} failed: the web pages will be incomplete.")
