from sandbox_engine.control.errors import STATUS, all_errors


def test_every_error_of_the_engine_has_a_status_and_a_code_of_its_own():
    errors = set(all_errors())
    assert errors == set(STATUS)
    assert len({error.code for error in errors}) == len(errors)
