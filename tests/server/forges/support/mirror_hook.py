"""The `post-receive` hook of the git server: what is pushed here is at the emulated GitHub too.

Ids of objects are git's own in the emulator. It does not keep time zones and signatures, and takes milliseconds for an
object, so for other commits and large pushes it gets a substitute, and the front translates the id.
"""

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime

ZERO = "0" * 40
MOST_OBJECTS = 300


def git(*arguments, text=True):
    done = subprocess.run(["git", *arguments], capture_output=True, text=text, check=True)
    return done.stdout


class Mirror:
    def __init__(self, url, token, repository):
        self._url = url
        self._token = token
        self._repository = repository

    def call(self, method, path, document=None, *, world=False):
        base = f"{self._url}/_world" if world else f"{self._url}/repos/{self._repository}"
        request = urllib.request.Request(
            f"{base}{path}",
            method=method,
            data=None if document is None else json.dumps(document).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or b"{}")

    def push(self, old, new, ref, others):
        if new == ZERO:
            self.call("DELETE", f"/git/{ref}")
            return
        known = [one for one in {old, *others} if one != ZERO]
        new_objects = git("rev-list", "--objects", new, "--not", *known).splitlines()
        if len(new_objects) > MOST_OBJECTS:
            self.substitute(new)
        else:
            for sha in git("rev-list", "--reverse", "--topo-order", new, "--not", *known).split():
                self.copy_commit(sha, {line.split()[0] for line in new_objects})
        document = {"sha": new, "force": True}
        if old == ZERO:
            self.call("POST", "/git/refs", {"ref": ref, **document})
        else:
            self.call("PATCH", f"/git/{ref}", document)

    def copy_commit(self, sha, new_objects):
        head, _, message = git("cat-file", "commit", sha).partition("\n\n")
        fields = [line.partition(" ")[::2] for line in head.split("\n")]
        first = dict(reversed(fields))
        self.copy_tree(first["tree"], new_objects)
        made = self.call(
            "POST",
            "/git/commits",
            {
                "message": message,
                "tree": first["tree"],
                "parents": [value for name, value in fields if name == "parent"],
                "author": person(first["author"]),
                "committer": person(first["committer"]),
            },
        )
        if made["sha"] != sha:
            self.alias(sha, made["sha"])

    def copy_tree(self, sha, new_objects):
        if sha not in new_objects:
            return
        new_objects.discard(sha)
        entries = []
        for line in git("ls-tree", "-z", sha).split("\0")[:-1]:
            about, _, path = line.partition("\t")
            mode, kind, entry = about.split()
            entries.append({"path": path, "mode": mode, "type": kind, "sha": entry})
            if kind == "tree":
                self.copy_tree(entry, new_objects)
            elif kind == "blob" and entry in new_objects:
                content = base64.b64encode(git("cat-file", "blob", entry, text=False)).decode()
                self.call("POST", "/git/blobs", {"content": content, "encoding": "base64"})
        self.call("POST", "/git/trees", {"tree": entries})

    def substitute(self, sha):
        entry = {"path": "substitute", "mode": "100644", "type": "blob", "content": sha}
        tree = self.call("POST", "/git/trees", {"tree": [entry]})["sha"]
        subject = git("log", "-1", "--format=%B", sha)
        commit = {"message": f"{subject}\n{sha[:20]}", "tree": tree, "parents": []}
        self.alias(sha, self.call("POST", "/git/commits", commit)["sha"])

    def alias(self, there, here):
        self.call("POST", "/alias", {"there": there, "here": here}, world=True)


def person(text):
    about, seconds, _zone = text.rsplit(" ", 2)
    name, _, email = about.partition(" <")
    date = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"name": name, "email": email.removesuffix(">"), "date": date}


def main():
    if "MIRROR_URL" not in os.environ:
        return
    mirror = Mirror(
        os.environ["MIRROR_URL"], os.environ["MIRROR_TOKEN"], os.environ["MIRROR_REPOSITORY"]
    )
    updates = [line.split() for line in sys.stdin]
    pushed = {ref for _, _, ref in updates}
    refs = (
        line.split()
        for line in git("for-each-ref", "--format=%(objectname) %(refname)").splitlines()
    )
    others = [sha for sha, ref in refs if ref not in pushed]
    for old, new, ref in updates:
        if ref.startswith(("refs/heads/", "refs/tags/")):
            try:
                mirror.push(old, new, ref, others)
            except urllib.error.HTTPError as error:
                sys.exit(f"mirror of {ref}: {error} {error.read().decode()[:500]}")


if __name__ == "__main__":
    main()
