import logging


def configure_log() -> None:
    """Have one line for each event, without colours: it is a file that people and streams read."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    fastmcp = logging.getLogger("fastmcp")
    fastmcp.handlers.clear()
    fastmcp.propagate = True
    fastmcp.setLevel(logging.WARNING)
    # It tells each failure of a tool, most of which are agents' mistakes; `failures` tells those that are ours.
    logging.getLogger("fastmcp.server.server").setLevel(logging.CRITICAL)
