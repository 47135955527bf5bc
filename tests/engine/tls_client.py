"""Run by test_tls where the domain's names resolve to the engine: nothing else points at it."""

import sys

from e2b import Sandbox


def create() -> None:
    sys.stdout.write(Sandbox.create(timeout=60).sandbox_id)


def use(sandbox_id: str) -> None:
    sandbox = Sandbox.connect(sandbox_id)
    sandbox.files.write("page.html", "served over TLS")
    sandbox.commands.run("python -m http.server 8000 --bind 127.0.0.1", background=True)
    sys.stdout.write(sandbox.commands.run("echo over TLS").stdout)
    sys.stdout.write(sandbox.get_host(8000) + "\n")
    sys.stdout.write(sandbox.download_url("page.html", use_signature_expiration=60) + "\n")


if __name__ == "__main__":
    use(sys.argv[1]) if sys.argv[1:] else create()
