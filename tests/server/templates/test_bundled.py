"""Reading the files of the bundled templates."""

import pytest

from sandbox_server.templates.bundled import UnusableTemplates, read_bundled_templates
from tests.server.templates.bundled_templates import write_context


@pytest.fixture
def context(tmp_path):
    return write_context(tmp_path)


def test_bundled_templates__those_of_this_repository_are_valid():
    bundled = read_bundled_templates().templates
    assert bundled.keys() >= {"agent", "agent-full", "relay-workspace"}
    agent, full = bundled["agent"], bundled["agent-full"]
    assert bundled["relay-workspace"] is full
    assert agent.digest != full.digest
    assert "src/sandbox_tools/cli.py" in agent.context.files
    assert "docker/sandbox/start-services.sh" in agent.context.files
    assert agent.context.files["docker/sandbox/start-services.sh"].is_executable


def test_bundled_templates__publish_their_capabilities_by_name_and_alias():
    capabilities = read_bundled_templates().capabilities()
    assert capabilities["agent"] == {"mcp"}
    assert capabilities["relay-workspace"] == capabilities["agent-full"] == {"browser", "mcp"}


def test_bundled_templates__an_invalid_capability_is_refused(context):
    manifest = context / "templates/e2b.toml"
    manifest.write_text(f'{manifest.read_text()}\ncapabilities = ["No Word"]\n')
    with pytest.raises(UnusableTemplates, match="capabilities"):
        read_bundled_templates(context)


def test_bundled_templates__only_their_own_files_are_read(context):
    files = read_bundled_templates(context).templates["agent"].context.files
    assert sorted(files) == [
        *("docker/sandbox/given", "docker/sandbox/start.sh", "docker/sandbox/within/deeper"),
        *("src/sandbox_tools/tool.py", "templates/e2b.Dockerfile", "templates/e2b.toml"),
    ]
    (context / "docker/sandbox/link").symlink_to("/etc/passwd")
    assert read_bundled_templates(context).templates["agent"].context.files.keys() == files.keys()


def test_bundled_templates__arguments_are_set_in_the_dockerfile(context):
    definition = read_bundled_templates(context).templates["agent"].definition
    assert definition.dockerfile is not None
    assert "ARG WITH_WORDS='some words'\n" in definition.dockerfile
    assert (definition.cpu_count, definition.memory_mb) == (1, 256)


@pytest.mark.parametrize(
    "path", ["src/sandbox_tools/tool.py", "docker/sandbox/given", "templates/e2b.Dockerfile"]
)
def test_bundled_templates__a_changed_file_changes_the_digest(context, path):
    before = read_bundled_templates(context).templates["agent"].digest
    assert read_bundled_templates(context).templates["agent"].digest == before
    (context / path).write_text("ARG WITH_WORDS")
    assert read_bundled_templates(context).templates["agent"].digest != before


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("templates/e2b.toml", "no toml", "is invalid"),
        ("templates/e2b.toml", "dockerfile = 'x'", "is invalid"),
        ("templates/e2b.Dockerfile", "FROM x", "has no such ARG"),
    ],
)
def test_bundled_templates__invalid_manifests_are_reported(context, path, text, said):
    (context / path).write_text(text)
    with pytest.raises(UnusableTemplates, match=said):
        read_bundled_templates(context)


def test_bundled_templates__a_directory_without_templates_is_rejected(tmp_path):
    with pytest.raises(UnusableTemplates, match=r"e2b\.toml is missing"):
        read_bundled_templates(tmp_path)
