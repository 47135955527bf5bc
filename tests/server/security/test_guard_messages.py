from sandbox_server.supervisor.guard_channel import STOP, make_guard_channel


def test_guard__an_endless_order_is_read_up_to_a_limit():
    guards, servers = make_guard_channel()
    servers.orders.write("x" * 4096)  # without a newline, for which a reader would wait
    servers.orders.flush()
    assert guards.read_order() == "x" * 64
    guards.close()


def test_guard__an_order_is_read_completely():
    guards, servers = make_guard_channel()
    servers.orders.write(f"{STOP}\n")
    servers.orders.flush()
    assert guards.read_order() == STOP
    guards.close()
    servers.close()
