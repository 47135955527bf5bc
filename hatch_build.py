import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface[Any]):
    """Has what is built contain what the page has of others, where npm's registry answers."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        if version == "editable":  # scripts/install does it
            return
        fetching = ["scripts/vendor", sys.executable]
        if subprocess.run(fetching, cwd=self.root, check=False).returncode != 0:  # noqa: S603 - our own
            self.app.display_warning("Without npm's registry: the page will have no terminals.")
