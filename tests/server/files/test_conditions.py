import pytest

from sandbox_server.domain.errors import FileChanged, RangeOutside
from sandbox_server.domain.files import Entry, EntryType
from sandbox_server.files.conditions import Conditions
from sandbox_server.providers.protocol.transfers import ByteRange

SIZE = 10
FOUND = Entry(
    path="/f",
    name="f",
    type=EntryType.FILE,
    size=SIZE,
    mode=0o644,
    owner="user",
    group="user",
    modified_ns=1_800_000_000_500_000_000,
    symlink_target=None,
)
AT = "Fri, 15 Jan 2027 08:00:00 GMT"
BEFORE = "Fri, 15 Jan 2027 07:59:59 GMT"


@pytest.mark.parametrize(
    ("header", "start", "length"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-", 0, SIZE),
        ("bytes=9-99", 9, 1),
        ("bytes=-3", 7, 3),
        ("bytes=-99", 0, SIZE),
        ("bytes= 1-2 ", 1, 2),
    ],
)
def test_a_range_is_cut_to_what_there_is(header, start, length):
    part = Conditions(range=header).part_of(FOUND)
    assert part == ByteRange(start=start, length=length)


@pytest.mark.parametrize(
    "header", ["bytes=0-1,3-4", "bytes=-", "bytes=3-2", "lines=1-2", "bytes=a-b", "bytes=", "bytes"]
)
def test_what_is_no_single_range_asks_for_all(header):
    assert Conditions(range=header).part_of(FOUND) is None


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99-"])
def test_a_range_behind_the_end_is_refused(header):
    with pytest.raises(RangeOutside, match="10 bytes"):
        Conditions(range=header).part_of(FOUND)


@pytest.mark.parametrize("header", ['"other"', f"W/{FOUND.etag}", AT, "nonsense"])
def test_the_rest_of_another_version_is_not_sent(header):
    assert Conditions(range="bytes=5-", if_range=header).part_of(FOUND) is None


@pytest.mark.parametrize("header", [f"W/{FOUND.etag}", '"other"', "", AT])
def test_only_the_very_version_matches_for_a_change(header):
    with pytest.raises(FileChanged):
        Conditions(if_match=header).require("/f", FOUND)


@pytest.mark.parametrize("header", ["*", FOUND.etag, f'"other", {FOUND.etag}'])
def test_a_version_matches_by_its_name_or_any(header):
    Conditions(if_match=header).require("/f", FOUND)
    with pytest.raises(FileChanged):
        Conditions(if_match=header).require("/f", None)
    with pytest.raises(FileChanged):
        Conditions(if_none_match=header).require_absent("/f", FOUND)
    Conditions(if_none_match=header).require_absent("/f", None)
    assert Conditions(if_none_match=header).is_known(FOUND)


def test_times_count_where_no_version_is_named():
    assert Conditions(if_modified_since=AT).is_known(FOUND)
    assert not Conditions(if_modified_since=BEFORE).is_known(FOUND)
    assert not Conditions(if_modified_since=AT, if_none_match='"other"').is_known(FOUND)
    Conditions(if_unmodified_since=AT).require("/f", FOUND)
    Conditions(if_unmodified_since=BEFORE, if_match="*").require("/f", FOUND)
    with pytest.raises(FileChanged, match="ETag"):
        Conditions(if_unmodified_since=BEFORE).require("/f", FOUND)


@pytest.mark.parametrize("text", ["", "yesterday", "Fri, 99 Jan 2027 08:00:00 GMT"])
def test_what_is_no_time_is_no_condition(text):
    wanted = Conditions(if_modified_since=text, if_unmodified_since=text)
    wanted.require("/f", FOUND)
    assert not wanted.is_known(FOUND)


def test_versions_differ_by_size_and_by_the_smallest_step_of_time():
    later = Entry(**{**vars(FOUND), "modified_ns": FOUND.modified_ns + 1})
    longer = Entry(**{**vars(FOUND), "size": SIZE + 1})
    assert len({FOUND.etag, later.etag, longer.etag}) == 3
