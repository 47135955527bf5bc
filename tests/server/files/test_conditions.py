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
def test_range__is_limited_to_the_file_size(header, start, length):
    part = Conditions(range=header).part_of(FOUND)
    assert part == ByteRange(start=start, length=length)


@pytest.mark.parametrize(
    "header", ["bytes=0-1,3-4", "bytes=-", "bytes=3-2", "lines=1-2", "bytes=a-b", "bytes=", "bytes"]
)
def test_range__multiple_or_invalid_ranges_return_the_whole_file(header):
    assert Conditions(range=header).part_of(FOUND) is None


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99-"])
def test_range__beyond_the_end_is_refused(header):
    with pytest.raises(RangeOutside, match="10 bytes"):
        Conditions(range=header).part_of(FOUND)


@pytest.mark.parametrize("header", ['"other"', f"W/{FOUND.etag}", AT, "nonsense"])
def test_if_range__another_version_returns_the_whole_file(header):
    assert Conditions(range="bytes=5-", if_range=header).part_of(FOUND) is None


@pytest.mark.parametrize("header", [f"W/{FOUND.etag}", '"other"', "", AT])
def test_if_match__requires_a_strong_match(header):
    with pytest.raises(FileChanged):
        Conditions(if_match=header).require("/f", FOUND)


@pytest.mark.parametrize("header", ["*", FOUND.etag, f'"other", {FOUND.etag}'])
def test_if_match__and_if_none_match_accept_a_list_or_any_version(header):
    Conditions(if_match=header).require("/f", FOUND)
    with pytest.raises(FileChanged):
        Conditions(if_match=header).require("/f", None)
    with pytest.raises(FileChanged):
        Conditions(if_none_match=header).require_absent("/f", FOUND)
    Conditions(if_none_match=header).require_absent("/f", None)
    assert Conditions(if_none_match=header).is_known(FOUND)


def test_if_modified_since__counts_only_without_an_etag():
    assert Conditions(if_modified_since=AT).is_known(FOUND)
    assert not Conditions(if_modified_since=BEFORE).is_known(FOUND)
    assert not Conditions(if_modified_since=AT, if_none_match='"other"').is_known(FOUND)
    Conditions(if_unmodified_since=AT).require("/f", FOUND)
    Conditions(if_unmodified_since=BEFORE, if_match="*").require("/f", FOUND)
    with pytest.raises(FileChanged, match="ETag"):
        Conditions(if_unmodified_since=BEFORE).require("/f", FOUND)


@pytest.mark.parametrize("text", ["", "yesterday", "Fri, 99 Jan 2027 08:00:00 GMT"])
def test_if_modified_since__an_invalid_date_is_ignored(text):
    wanted = Conditions(if_modified_since=text, if_unmodified_since=text)
    wanted.require("/f", FOUND)
    assert not wanted.is_known(FOUND)


def test_etag__differs_by_size_and_by_the_smallest_time_step():
    later = Entry(**{**vars(FOUND), "modified_ns": FOUND.modified_ns + 1})
    longer = Entry(**{**vars(FOUND), "size": SIZE + 1})
    assert len({FOUND.etag, later.etag, longer.etag}) == 3
