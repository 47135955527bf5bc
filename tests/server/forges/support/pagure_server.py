"""Runs in the Debian that scripts/test-programs unpacks: Pagure with its Redis, its worker and its pages."""

import datetime as dt
import json
import subprocess
import sys
import time
from pathlib import Path

from pagure.config import config  # type: ignore[import-not-found]
from pagure.flask_app import create_app  # type: ignore[import-not-found]
from pagure.lib import login, model, model_base, query  # type: ignore[import-not-found]
from werkzeug.serving import make_server

STATE, PORT, USERS = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")


def start(*command: str) -> None:
    subprocess.Popen(command, stdout=sys.stderr, cwd=STATE)


def start_services() -> None:
    socket = Path(config["REDIS_SOCKET"])
    start("redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "")
    while not socket.exists():
        time.sleep(0.05)
    # Other pools need semaphores in /dev/shm.
    start("celery", "-A", "pagure.lib.tasks", "worker", "--pool", "solo")


def make_tokens() -> dict[str, str]:
    """Add the users; gives a token of each that may do everything a user may."""
    model.create_tables(config["DB_URL"], acls=config["ACLS"])
    session = model_base.create_session(config["DB_URL"])
    tomorrow = (dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).date()
    tokens = {}
    for user in USERS:
        row = query.set_up_user(session, user, user.title(), f"{user}@example.org")
        row.password = login.generate_hashed_value(login.id_generator())
        session.commit()
        token = query.add_token_to_user(session, None, config["USER_ACLS"], user, tomorrow)
        tokens[user] = token.id
    return tokens


def with_text_headers(application):
    """Undo what Pagure's bytes in headers of git become with today's Werkzeug: the text of their notation."""

    def as_text(value: str) -> str:
        return value[2:-1] if value.startswith("b'") else value

    def answer(environ, start_response):
        def start(status, headers, *error):
            return start_response(status, [(key, as_text(value)) for key, value in headers], *error)

        return application(environ, start)

    return answer


def main() -> None:
    start_services()
    tokens = make_tokens()
    application = with_text_headers(create_app())
    server = make_server("127.0.0.1", PORT, application, threaded=True)
    (STATE / "tokens.new").write_text(json.dumps(tokens))
    (STATE / "tokens.new").rename(STATE / "tokens.json")
    server.serve_forever()


main()
