from sandbox_server.git.endpoint.push_report import message


def test_push_report__a_long_reason_has_its_beginning_and_its_end():
    said = message(f"refused by the forge: {'a warning ' * 200}the branch is protected")
    assert b"refused by the forge: a warning" in said
    assert said.endswith(b"the branch is protected\n")
    assert len(said) < 420
