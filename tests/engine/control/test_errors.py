from sandbox_engine.control.errors import STATUS, all_errors


def test_errors__every_error_has_a_status_and_a_unique_code():
    errors = set(all_errors())
    assert errors == set(STATUS)
    assert len({error.code for error in errors}) == len(errors)
