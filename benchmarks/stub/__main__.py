import socket

import uvicorn

from benchmarks.stub.app import stub_app

_BACKLOG = 2048

with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server = uvicorn.Server(
        uvicorn.Config(stub_app(), log_level="warning", access_log=False, loop="uvloop")
    )
    server.run(sockets=[listener])
