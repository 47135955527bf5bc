from sandbox_server.supervisor.link import STOP, make_link


def test_of_an_order_that_never_ends_the_guard_reads_no_more_than_any_order_has():
    guards, servers = make_link()
    servers.orders.write("x" * 4096)  # and no end of the line, which would be waited for
    servers.orders.flush()
    assert guards.read_order() == "x" * 64
    guards.close()


def test_an_order_is_read_whole():
    guards, servers = make_link()
    servers.orders.write(f"{STOP}\n")
    servers.orders.flush()
    assert guards.read_order() == STOP
    guards.close()
    servers.close()
