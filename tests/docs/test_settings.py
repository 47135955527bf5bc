import subprocess
import sys

from tests.docs.blocks import REPOSITORY


def test_settings_tables__match_the_code():
    checked = subprocess.run(
        [sys.executable, REPOSITORY / "scripts/settings-tables", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
