import pytest

from sandbox_server.backends.e2b.recipe import build_request
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.templates import Definition, Step, StepKind


def steps_of(definition):
    told = build_request(definition).to_dict()["steps"]
    return [(step["type"], *step["args"]) for step in told]


def dockerfile(*lines):
    return Definition(dockerfile="\n".join(lines))


def test_a_dockerfile_becomes_steps_like_the_sdks():
    definition = dockerfile("FROM debian:12", "ENV A=1", "RUN true", 'CMD ["serve"]')
    asked = build_request(definition)
    assert asked.from_image == "debian:12"
    assert steps_of(definition) == [
        ("USER", "root"),
        ("WORKDIR", "/"),
        ("ENV", "A", "1"),
        ("RUN", "true"),
        ("USER", "user"),
        ("WORKDIR", "/home/user"),
    ]
    assert (asked.start_cmd, asked.ready_cmd) == ("serve", "sleep 20")


def test_steps_come_in_order_with_the_variables_first():
    definition = Definition(
        from_image="debian:12",
        steps=[Step(StepKind.WORKDIR, "/a"), Step(StepKind.RUN, "make")],
        envs={"A": "1"},
    )
    assert steps_of(definition) == [("ENV", "A", "1"), ("WORKDIR", "/a"), ("RUN", "make")]


def test_what_the_request_says_to_start_goes_before_the_dockerfiles():
    definition = Definition(dockerfile="FROM x\nCMD a", start_command="b", ready_command="c")
    asked = build_request(definition)
    assert (asked.start_cmd, asked.ready_cmd) == ("b", "c")


@pytest.mark.parametrize("copying", ["COPY secrets.txt /", "ADD . /app", "COPY /etc/passwd /x"])
def test_a_dockerfile_that_copies_files_is_refused_with_what_to_do(copying):
    with pytest.raises(InvalidRequest, match=r"no files come with it.*COPY <<EOF"):
        build_request(dockerfile("FROM x", copying))


def test_a_dockerfile_may_have_files_in_it():
    [*_, written, _, _] = steps_of(dockerfile("FROM x", "COPY <<EOF /hello", "hi", "EOF"))
    assert written[0] == "RUN"
    assert "hi" in written[1]


def test_the_path_of_a_file_here_is_no_dockerfile(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text("FROM secret-image")
    with pytest.raises(InvalidRequest):
        build_request(Definition(dockerfile=str(file)))


@pytest.mark.parametrize("text", ["", "RUN true", "FROM a\nFROM b", "FROM", "\0", "FROM a\nENV"])
def test_what_is_no_dockerfile_is_refused(text):
    with pytest.raises(InvalidRequest):
        build_request(Definition(dockerfile=text))


def test_what_the_parser_warns_of_is_not_written_to_our_output(capsys):
    build_request(dockerfile("FROM x", "RUN --mount=type=cache,target=/x true", "SHELL []"))
    assert capsys.readouterr().out == ""
