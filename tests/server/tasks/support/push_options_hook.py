"""The `post-receive` hook of a forge without an API: records push options, and shows the pull request as a ref."""

import os
import subprocess
import sys
from pathlib import Path

options = [
    os.environ[f"GIT_PUSH_OPTION_{index}"]
    for index in range(int(os.environ.get("GIT_PUSH_OPTION_COUNT", "0")))
]
with Path("push-options").open("a") as told:
    told.write("\t".join(options) + "\n")
for line in sys.stdin:
    _old, new, ref = line.split()
    if ref.startswith("refs/for/"):
        subprocess.run(["git", "update-ref", "refs/pull/7/head", new], check=True)
        subprocess.run(["git", "update-ref", "-d", ref], check=True)
    elif "merge_request.create" in options:
        subprocess.run(["git", "update-ref", "refs/merge-requests/3/head", new], check=True)
