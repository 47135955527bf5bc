"""The `update` hook of the git server: files of CI workflows need a permission of their own, as at GitHub."""

import os
import subprocess
import sys

ZERO = "0" * 40
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def main(old: str, new: str) -> int:
    if new == ZERO or os.environ.get("GIT_MAY_WORKFLOWS", "1") == "1":
        return 0
    base = EMPTY_TREE if old == ZERO else old
    if old == ZERO:
        found = subprocess.run(
            ["git", "merge-base", "HEAD", new], capture_output=True, text=True, check=False
        )
        base = found.stdout.strip() or EMPTY_TREE
    changed = subprocess.run(
        ["git", "diff", "--name-only", base, new, "--", ".github/workflows"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if changed:
        print(  # noqa: T201 - git tells it the client
            f"refusing to allow a GitHub App to create or update workflow `{changed[0]}` without `workflows` permission"
        )
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], sys.argv[3]))
