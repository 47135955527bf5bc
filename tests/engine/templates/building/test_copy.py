import os

import pytest
from e2b import Template

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]  # a build is many starts of containers


@pytest.fixture(scope="module")
def made(builds, context, first_sandbox):
    _write(context)
    template = (
        Template(file_context_path=context)
        .from_base_image()
        .run_cmd(
            "mkdir -p /srv/existing/src /srv/real && ln -s real /srv/linked && cd /srv/existing"
            " && echo old > note.txt && ln -s /etc/passwd src/main.py && chmod 700 src",
            user="root",
        )
        .set_envs({"TARGET": "/srv/from-env"})
        .copy("note.txt", "/srv/renamed.txt")
        .copy("note.txt", "/srv/into/")
        .copy("note.txt", "/srv/existing")
        .copy("note.txt", "${TARGET}/note.txt", user="root", mode=0o4755)
        .copy("note.txt", "relative.txt", user="1234:2345")
        .copy("src", "/srv/copied")
        .copy("src", "/srv/existing/src", user="root:user")
        .copy("src", "/srv/linked")
        .copy("src", "/srv/modes", mode=0o710)
        .copy("src/**/*.py", "/srv/matched")
        .copy("*.txt", "/srv/all/")
        .copy("link", "/srv/link")
        .copy("link", "/srv/resolved", resolve_symlinks=True)
        .copy(".", "/srv/everything", gzip=False)
        .set_workdir("/srv/work")
        .copy("note.txt", ".")
        .copy_items([{"src": "note.txt", "dest": "sub/one"}, {"src": "src", "dest": "two"}])
    )
    return first_sandbox(builds.build(template))


def _write(context):
    (context / "note.txt").write_text("note")
    (context / "other.txt").write_text("other")
    (context / "link").symlink_to("note.txt")
    deep = context / "src" / "deep"
    deep.mkdir(parents=True)
    (context / "src" / "main.py").write_text("main")
    (context / "src" / "data.bin").write_bytes(os.urandom(3_000_000))
    (deep / "tool.py").write_text("tool")
    (deep / "tool.py").chmod(0o755)
    (context / "src" / "up").symlink_to("deep/tool.py")
    os.link(context / "src" / "main.py", context / "src" / "twin")
    deep.chmod(0o750)


@pytest.fixture(scope="module")
def shell(made):
    def run(script):
        return made.commands.run(f"cd /srv; {script}", user="root").stdout.splitlines()

    return run


def test_build_copy__file_goes_to_a_file_or_into_a_directory(shell):
    files = "renamed.txt into/note.txt existing/note.txt work/note.txt work/sub/one"
    assert shell(f"tail -qn1 {files}; cat from-env/note.txt") == ["note" * 6]


def test_build_copy__files_belong_to_the_step_user_by_default(shell):
    assert shell("stat -c '%U:%G %a' renamed.txt") == ["user:user 644"]
    assert shell("stat -c '%U:%G %a' from-env/note.txt") == ["root:root 4755"]
    assert shell("stat -c '%u:%g' /home/user/relative.txt") == ["1234:2345"]
    assert shell("stat -c %U:%G existing/src/data.bin into into/note.txt") == [
        "root:user",
        "root:root",
        "user:user",
    ]


def test_build_copy__directory_is_merged(shell):
    assert shell("find copied -printf '%P %y\n' | sort") == [
        " d",
        "data.bin f",
        "deep d",
        "deep/tool.py f",
        "main.py f",
        "twin f",
        "up l",
    ]
    assert shell("stat -c '%a %U' copied copied/deep copied/deep/tool.py") == [
        "755 root",
        "750 user",
        "755 user",
    ]
    assert shell("readlink copied/up; stat -c %h copied/main.py copied/twin") == [
        "deep/tool.py",
        "2",
        "2",
    ]


def test_build_copy__existing_files_are_replaced_and_directories_keep_modes(shell):
    assert shell("stat -c '%F %a' existing/src existing/src/main.py") == [
        "directory 700",
        "regular file 644",
    ]
    assert shell("cat existing/src/main.py; head -n1 /etc/passwd")[0].startswith("mainroot:")


def test_build_copy__linked_directory_is_followed(shell):
    assert shell("stat -c %F linked; cat real/main.py") == ["symbolic link", "main"]


def test_build_copy__mode_applies_to_everything(shell):
    assert shell("stat -c %a modes/deep modes/main.py modes/deep/tool.py") == ["710"] * 3


def test_build_copy__pattern_is_matched_by_the_client(shell):
    assert shell("find matched all -type f | sort") == [
        "all/note.txt",
        "all/other.txt",
        "matched/deep/tool.py",
        "matched/main.py",
    ]


def test_build_copy__links_are_kept_unless_resolved(shell):
    assert shell("stat -c '%F %U' link resolved; cat resolved") == [
        "symbolic link user",
        "regular file user",
        "note",
    ]


def test_build_copy__everything_can_be_copied(shell, context):
    names = sorted(path.name for path in context.iterdir())
    assert shell("ls everything | sort") == names
    assert shell("cmp everything/src/data.bin copied/data.bin && echo same") == ["same"]


def test_build_copy__relative_destination_is_below_the_workdir(shell):
    assert shell("find work -type f -printf '%P\n' | sort") == [
        "note.txt",
        "sub/one",
        "two/data.bin",
        "two/deep/tool.py",
        "two/main.py",
        "two/twin",
    ]
