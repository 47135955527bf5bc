import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Kit, SdkRefusal, Unreachable, expected_refusal, probe


async def build(kit: Kit, template: Any) -> str:
    """Build a template and return its name."""
    name = f"probe-{secrets.token_hex(4)}"
    await kit(kit.Template.build, template, name)
    return name


async def say(kit: Kit, name: str, command: str) -> str:
    """Run a command in a sandbox of the template."""
    sandbox = await kit.sandbox(name)
    return str((await kit(sandbox.commands.run, command)).stdout)


@probe("Template.build", "Template.from_base_image", "Template.to_json")
async def build_from_base(kit: Kit) -> None:
    template = kit.Template().from_base_image().run_cmd("echo built > /home/user/made")
    assert "built" in kit.Template.to_json(template)
    assert await say(kit, await build(kit, template), "cat ~/made") == "built\n"


@probe("Template.build_in_background", "Template.get_build_status")
async def build_in_background(kit: Kit) -> None:
    template = kit.Template().from_template("base").run_cmd("true")
    name = f"probe-{secrets.token_hex(4)}"
    built = await kit(kit.Template.build_in_background, template, name)
    status = await kit(kit.Template.get_build_status, built)
    assert status.build_id == built.build_id


@probe("Template.from_template", "Template.skip_cache")
async def from_template(kit: Kit) -> None:
    template = kit.Template().skip_cache().from_template("base").set_envs({"OF": "template"})
    assert await say(kit, await build(kit, template), "echo $OF") == "template\n"


@probe("Template.exists", "Template.alias_exists")
async def exists(kit: Kit) -> None:
    name = await build(kit, kit.Template().from_template("base"))
    check = getattr(kit.Template, "exists", None) or kit.Template.alias_exists
    assert await kit(check, name)
    assert not await kit(check, "nobody-has-this-name")


@probe("Template.assign_tags", "Template.remove_tags", "Template.get_tags")
async def tags(kit: Kit) -> None:
    name = await build(kit, kit.Template().from_template("base"))
    await kit(kit.Template.assign_tags, f"{name}:default", ["v1"])
    assert "v1" in [one.tag for one in await kit(kit.Template.get_tags, name)]
    await kit(kit.Template.remove_tags, name, "v1")
    assert "v1" not in [one.tag for one in await kit(kit.Template.get_tags, name)]


@probe("Template.from_dockerfile", "Template.to_dockerfile")
async def from_dockerfile(kit: Kit) -> None:
    lines = "FROM debian:12-slim\nENV OF=dockerfile\nRUN echo built > /made\n"
    template = kit.Template().from_dockerfile(lines)
    assert "FROM" in kit.Template.to_dockerfile(template)
    assert await say(kit, await build(kit, template), "cat /made") == "built\n"


def _of_packages(kind: str, *arguments: str) -> Callable[[Kit], Any]:
    """Create the probe of a base that the engine builds from packages."""

    async def probe_base(kit: Kit) -> None:
        template = getattr(kit.Template(), f"from_{kind}_image")(*arguments)
        assert await say(kit, await build(kit, template), "id -un") == "user\n"

    return probe_base


probe("Template.from_debian_image")(_of_packages("debian", "12-slim"))
probe("Template.from_python_image")(_of_packages("python", "3.11"))
probe("Template.from_node_image")(_of_packages("node"))


@probe("Template.from_image")
async def from_image(kit: Kit) -> None:
    template = kit.Template().from_image(os.environ["PROBE_IMAGE"])
    assert await say(kit, await build(kit, template), "id -un") == "user\n"


NO_CONNECTION = r"dial tcp|connection refused|i/o timeout|does not answer"


def _from_elsewhere(method: str, registry: str, *arguments: Any) -> Callable[[Kit], Any]:
    """Create the probe of a base that only its registry has: the engine must name the registry."""

    async def probe_base(kit: Kit) -> None:
        template = getattr(kit.Template(), method)(*arguments)
        with expected_refusal(kit, f"{registry}.*({NO_CONNECTION})", Unreachable):
            assert await say(kit, await build(kit, template), "echo built") == "built\n"

    return probe_base


for _name in ("alpine", "arch", "bun", "fedora", "ubuntu"):
    _method = f"from_{_name}_image"
    probe(f"Template.{_method}")(_from_elsewhere(_method, r"docker\.io"))
for _cloud, *_credentials in (
    ("aws", "id", "secret", "region"),
    ("gcp", {"type": "service_account"}),
):
    _method = f"from_{_cloud}_registry"
    probe(f"Template.{_method}")(
        _from_elsewhere(_method, "localhost:1", "localhost:1/image", *_credentials)
    )


def _step(script: str, make: Callable[[Any], Any], told: str) -> Callable[[Kit], Any]:
    """Create the probe of a step: compare the output of a command in a sandbox of the template."""

    async def probe_step(kit: Kit) -> None:
        template = make(kit.Template().from_template("base"))
        assert await say(kit, await build(kit, template), script) == told

    return probe_step


def _clone(template: Any) -> Any:
    made = "git init -q r && touch r/file && git -C r add . && "
    commit = "git -C r -c user.name=A -c user.email=a@example.org commit -qm c"
    return template.run_cmd(made + commit).git_clone("file:///home/user/r", "copy")


for _method, _script, _make, _told in (
    ("run_cmd", "cat made", lambda t: t.run_cmd("echo built > made"), "built\n"),
    ("make_dir", "ls -d below", lambda t: t.make_dir("below"), "below\n"),
    ("make_symlink", "readlink link", lambda t: t.make_symlink("/etc", "link"), "/etc\n"),
    ("set_envs", "echo $OF", lambda t: t.set_envs({"OF": "template"}), "template\n"),
    ("set_workdir", "pwd", lambda t: t.set_workdir("/srv/work"), "/srv/work\n"),
    ("set_user", "id -un", lambda t: t.set_user("root"), "root\n"),
    ("skip_cache", "cat made", lambda t: t.skip_cache().run_cmd("echo new > made"), "new\n"),
    (
        "rename",
        "cat new",
        lambda t: t.run_cmd("echo moved > old").rename("old", "new"),
        "moved\n",
    ),
    ("remove", "ls", lambda t: t.run_cmd("touch gone").remove("gone"), ""),
    (
        "set_start_cmd",
        "curl -s localhost:8123/made",
        lambda t: t.run_cmd("echo -n served > made").set_start_cmd(
            "python -m http.server 8123", "curl -s localhost:8123"
        ),
        "served",
    ),
    (
        "set_ready_cmd",
        "cat made",
        lambda t: t.run_cmd("echo built > made").set_ready_cmd("test -e made"),
        "built\n",
    ),
    ("git_clone", "ls copy", _clone, "file\n"),
    ("apt_install", "tree --version | head -c4", lambda t: t.apt_install(["tree"]), "tree"),
    (
        "pip_install",
        "python -c 'import six; print(six.PY3)'",
        lambda t: t.pip_install(["six"]),
        "True\n",
    ),
    ("npm_install", "ls node_modules", lambda t: t.npm_install(["is-number"]), "is-number\n"),
):
    probe(f"TemplateBuilder.{_method}")(_step(_script, _make, _told))


@probe("TemplateBuilder.copy", "TemplateBuilder.copy_items")
async def copy(kit: Kit) -> None:
    with tempfile.TemporaryDirectory() as context:
        Path(context, "file").write_text("copied")
        template = kit.Template(file_context_path=context).from_template("base")
        template = template.copy("file", "one").copy_items([{"src": "file", "dest": "two"}])
        assert await say(kit, await build(kit, template), "cat one two") == "copiedcopied"


@probe("TemplateBuilder.bun_install")
async def bun_install(kit: Kit) -> None:
    template = kit.Template().from_template("base").bun_install(["is-number"])
    with expected_refusal(kit, "exit status 127.*bun: .*not found", Unreachable):
        assert await say(kit, await build(kit, template), "ls node_modules") == "is-number\n"


def _of_another_base(reason: str, make: Callable[[Any], Any]) -> Callable[[Kit], Any]:
    """Create the probe of a step that the SDK allows only on E2B's own templates."""

    async def probe_step(kit: Kit) -> None:
        with expected_refusal(kit, reason, SdkRefusal):
            make(kit.Template().from_template("base"))
        raise AssertionError("the SDK does not refuse it any more: have the engine build it")

    return probe_step


_NO_GATEWAY = "only be added to mcp-gateway template"
_NO_DEVCONTAINER = "only used in the devcontainer template"
for _method, _reason, _make in (
    ("add_mcp_server", _NO_GATEWAY, lambda t: t.add_mcp_server("exa")),
    (
        "beta_dev_container_prebuild",
        _NO_DEVCONTAINER,
        lambda t: t.beta_dev_container_prebuild("/srv"),
    ),
    (
        "beta_set_dev_container_start",
        _NO_DEVCONTAINER,
        lambda t: t.beta_set_dev_container_start("/srv"),
    ),
):
    probe(f"TemplateBuilder.{_method}")(_of_another_base(_reason, _make))
