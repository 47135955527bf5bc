"""What the engine decides from a tree of control groups; scripts try it on real ones with cgroup v2."""

import os

import pytest

from sandbox_engine.container.cgroup_controllers import NEEDED, RootGroup, find_obstacle

ALL = "cpuset cpu io memory hugetlb pids rdma misc"
OTHER_PID = 1


def group(directory, *, available=ALL, enabled="", kind="domain", pids=()):
    """Write the files of a cgroup v2 group; a `kind` of None makes the machine's root."""
    files = {
        "cgroup.controllers": available,
        "cgroup.subtree_control": enabled,
        "cgroup.procs": "".join(f"{pid}\n" for pid in pids),
    }
    if kind is not None:
        files["cgroup.type"] = kind
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(f"{text}\n" if text else "")
    return directory


def read(directory):
    return RootGroup.read(directory, pid=os.getpid())


def obstacle_in(directory):
    obstacle = find_obstacle(directory)
    assert obstacle is not None
    return obstacle


@pytest.mark.parametrize("enabled", ["", "memory pids"])
def test_cgroup_controllers__machine_root_is_never_vacated(tmp_path, enabled):
    root = read(group(tmp_path, kind=None, enabled=enabled, pids=[OTHER_PID, os.getpid()]))
    assert root.lacking == NEEDED - set(enabled.split())
    assert not root.must_be_vacated
    assert root.obstacle() is None


def test_cgroup_controllers__container_root_is_vacated_before_enabling(tmp_path):
    root = read(group(tmp_path, pids=[OTHER_PID, os.getpid()]))
    assert root.lacking == NEEDED
    assert root.must_be_vacated
    assert root.obstacle() is None


def test_cgroup_controllers__interrupted_vacating_is_continued_by_the_next_engine(tmp_path):
    group(tmp_path / "init", pids=[os.getpid()])
    root = read(group(tmp_path, pids=[OTHER_PID]))
    assert root.must_be_vacated
    assert root.obstacle() is None


def test_cgroup_controllers__nothing_is_moved_if_controllers_are_enabled(tmp_path):
    root = read(group(tmp_path, enabled="cpu memory pids", pids=[]))
    assert not root.lacking
    assert not root.must_be_vacated
    assert root.obstacle() is None


def test_cgroup_controllers__foreign_processes_are_not_moved(tmp_path):
    obstacle = obstacle_in(group(tmp_path, pids=[OTHER_PID]))
    assert "cpu, memory, pids not enabled" in obstacle.problem
    assert "do not belong to the engine's container" in obstacle.problem
    assert "--cgroupns=private" in obstacle.fix


@pytest.mark.parametrize("kind", ["domain threaded", "domain invalid", "threaded"])
def test_cgroup_controllers__group_that_cannot_get_controllers_is_reported(tmp_path, kind):
    obstacle = obstacle_in(group(tmp_path, enabled="cpuset cpu pids", kind=kind))
    assert "memory not enabled" in obstacle.problem
    assert "Recreate the engine's container" in obstacle.fix


def test_cgroup_controllers__a_kernel_without_the_memory_controller_is_reported(tmp_path):
    obstacle = obstacle_in(group(tmp_path, kind=None, available="cpuset cpu io pids"))
    assert obstacle.problem == "memory not available"
    assert "cgroup_disable" in obstacle.fix


def test_cgroup_controllers__a_container_without_the_memory_controller_is_reported(tmp_path):
    obstacle = obstacle_in(group(tmp_path, available="cpu pids", pids=[os.getpid()]))
    assert obstacle.problem == "memory not available in this container"
    assert "each parent's cgroup.subtree_control" in obstacle.fix


def test_cgroup_controllers__v1_controllers_are_directories(tmp_path):
    for name in ("cpu", "cpuacct", "memory", "pids", "freezer"):
        (tmp_path / name).mkdir()
    assert find_obstacle(tmp_path) is None
    (tmp_path / "memory").rmdir()
    assert obstacle_in(tmp_path).problem == "memory not available"
