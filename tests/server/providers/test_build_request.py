import io
import tarfile

import pytest

from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.templates import Definition, Step, StepKind
from sandbox_server.providers.e2b.build_request import build_request
from sandbox_server.providers.e2b.uploads import archive_of
from sandbox_server.providers.protocol.build_context import BuildContext, ContextFile


def steps_of(definition):
    told = build_request(definition).to_dict()["steps"]
    return [(step["type"], *step["args"]) for step in told]


def dockerfile(*lines):
    return Definition(dockerfile="\n".join(lines))


def test_dockerfile__becomes_the_same_steps_as_in_the_sdk():
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


def test_build_request__steps_follow_the_variables_in_order():
    definition = Definition(
        from_image="debian:12",
        steps=[Step(StepKind.WORKDIR, "/a"), Step(StepKind.RUN, "make")],
        envs={"A": "1"},
    )
    assert steps_of(definition) == [("ENV", "A", "1"), ("WORKDIR", "/a"), ("RUN", "make")]


def test_build_request__the_start_command_precedes_the_dockerfiles():
    definition = Definition(dockerfile="FROM x\nCMD a", start_command="b", ready_command="c")
    asked = build_request(definition)
    assert (asked.start_cmd, asked.ready_cmd) == ("b", "c")


@pytest.mark.parametrize("copying", ["COPY secrets.txt /", "ADD . /app", "COPY /etc/passwd /x"])
def test_dockerfile__copying_files_without_a_context_is_refused_with_a_remedy(copying):
    with pytest.raises(InvalidRequest, match=r"no files come with it.*COPY <<EOF"):
        build_request(dockerfile("FROM x", copying))


def test_dockerfile__may_contain_heredocs():
    [*_, written, _, _] = steps_of(dockerfile("FROM x", "COPY <<EOF /hello", "hi", "EOF"))
    assert written[0] == "RUN"
    assert "hi" in written[1]


def test_dockerfile__a_local_path_is_not_read(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text("FROM secret-image")
    with pytest.raises(InvalidRequest):
        build_request(Definition(dockerfile=str(file)))


@pytest.mark.parametrize("text", ["", "RUN true", "FROM a\nFROM b", "FROM", "\0", "FROM a\nENV"])
def test_dockerfile__an_invalid_one_is_refused(text):
    with pytest.raises(InvalidRequest):
        build_request(Definition(dockerfile=text))


def test_dockerfile__warnings_of_the_parser_are_not_printed(capsys):
    build_request(dockerfile("FROM x", "RUN --mount=type=cache,target=/x true", "SHELL []"))
    assert capsys.readouterr().out == ""


CONTEXT = BuildContext(
    {
        "docker/a/one": ContextFile(b"1"),
        "docker/a/within/two.sh": ContextFile(b"2", is_executable=True),
        "src/three.py": ContextFile(b"3"),
    }
)


def copied(*copying, context=CONTEXT):
    steps = build_request(dockerfile("FROM x", *copying), context=context).steps
    assert isinstance(steps, list)
    return next(step for step in steps if step.type_ == "COPY")


def test_build_context__files_are_copied_under_their_content_hash():
    step = copied("COPY --chmod=755 --chown=user docker/a /opt/")
    assert step.args == ["docker/a", "/opt/", "user", "0755"]
    others = [
        copied("COPY docker/a /srv/"),
        copied("COPY docker/a/one /opt/"),
        copied("COPY docker/a /opt/", context=changed("docker/a/one", ContextFile(b"9"))),
        copied("COPY docker/a /opt/", context=changed("docker/a/one", ContextFile(b"1", True))),
    ]
    assert len({step.files_hash, *(one.files_hash for one in others)}) == 5
    elsewhere = changed("src/three.py", ContextFile(b"9"))
    assert copied("COPY docker/a /opt/", context=elsewhere).files_hash == step.files_hash


def changed(path, file):
    return BuildContext({**CONTEXT.files, path: file})


@pytest.mark.parametrize(
    ("source", "packed"),
    [
        ("docker/a", ["docker/a", "docker/a/within", "docker/a/one", "docker/a/within/two.sh"]),
        ("./docker/a/one", ["docker/a/one"]),
        ("src/*.py", ["src/three.py"]),
    ],
)
def test_build_context__only_copied_files_are_sent(source, packed):
    with tarfile.open(fileobj=io.BytesIO(archive_of(CONTEXT, source))) as archive:
        assert [one.name for one in archive] == packed
        assert {one.name for one in archive if one.mode & 0o100 and one.isreg()} <= {
            "docker/a/within/two.sh"
        }


@pytest.mark.parametrize("source", ["/etc/passwd", "../neighbour", "src/../../x", "nothing"])
def test_build_context__a_missing_file_is_refused(source):
    with pytest.raises(InvalidRequest, match="context"):
        copied(f"COPY {source} /opt/")
