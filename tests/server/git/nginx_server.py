"""git's own HTTP backend under nginx, as forges and administrators run it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.engine.engine_process import REPOSITORY
from tests.ports import free_port
from tests.server.git.git_server import PASSWORD, USER, GitServer
from tests.server.git.work_trees import git

_UNPACKED = REPOSITORY / ".cache" / "test-programs" / "usr"
_PATH = f"{_UNPACKED / 'sbin'}:{os.environ['PATH']}:/usr/sbin"
_LIBRARIES = ":".join(str(path.parent) for path in _UNPACKED.glob("lib/*/libfcgi.so.0"))
_NGINX, _FCGIWRAP = (shutil.which(name, path=_PATH) or "" for name in ("nginx", "fcgiwrap"))
needs_nginx = pytest.mark.skipif(
    not (_NGINX and _FCGIWRAP), reason="run scripts/test-programs slow: nginx is not there"
)
_CONFIGURATION = """
daemon off; worker_processes 1; pid {directory}/nginx.pid; {user}
events {{ }}
http {{
    access_log {directory}/access.log; client_max_body_size 0; client_body_temp_path {directory}/body;
    fastcgi_temp_path {directory}/fastcgi; proxy_temp_path {directory}/proxy;
    scgi_temp_path {directory}/scgi; uwsgi_temp_path {directory}/uwsgi;
    server {{
        listen 127.0.0.1:{port};
        auth_basic "git"; auth_basic_user_file {directory}/passwords;
        location / {{
            fastcgi_pass unix:{directory}/fcgiwrap.socket;
            fastcgi_param SCRIPT_FILENAME {backend}; fastcgi_param PATH_INFO $uri;
            fastcgi_param GIT_PROJECT_ROOT {repositories}; fastcgi_param GIT_HTTP_EXPORT_ALL 1;
            fastcgi_param GIT_PROTOCOL $http_git_protocol; fastcgi_param REMOTE_USER $remote_user;
            fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param GIT_CONFIG_NOSYSTEM 1; fastcgi_param HOME /nonexistent;
        }}
    }}
}}
"""


@dataclass
class NginxGitServer(GitServer):
    """The same repositories, served by nginx while it runs."""

    state: Path = field(default=Path())
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start nginx on its port, and wait until it listens."""
        command = [_NGINX, "-e", "stderr", "-p", str(self.state), "-c", "nginx.conf"]
        self.process = subprocess.Popen(command)
        while not (self.state / "nginx.pid").exists():
            assert self.process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                self.process.wait(0.05)

    def stop(self) -> None:
        """Stop nginx: connections are refused."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait()

    @property
    def answers(self) -> list[str]:
        """List what was requested, with the status of each answer."""
        lines = (self.state / "access.log").read_text().splitlines()
        return [line.split('"')[1] + line.split('"')[2][:4] for line in lines]


@contextmanager
def running_nginx(directory: Path, state: Path) -> Iterator[NginxGitServer]:
    state.mkdir()
    server = NginxGitServer(directory, free_port(), state=state)
    backend = Path(git(directory, "--exec-path")) / "git-http-backend"
    configured = _CONFIGURATION.format(
        directory=state,
        repositories=directory,
        port=server.port,
        backend=backend,
        user="user root;" if os.geteuid() == 0 else "",
    )
    (state / "nginx.conf").write_text(configured)
    (state / "passwords").write_text(f"{USER}:{{PLAIN}}{PASSWORD}\n")
    wrapper = [_FCGIWRAP, "-c", "4", "-s", f"unix:{state / 'fcgiwrap.socket'}"]
    environment = {**os.environ, "LD_LIBRARY_PATH": _LIBRARIES}
    with subprocess.Popen(wrapper, env=environment, start_new_session=True) as fcgiwrap:
        server.start()
        try:
            yield server
        finally:
            server.stop()
            os.killpg(fcgiwrap.pid, signal.SIGTERM)  # its workers do not end with it
