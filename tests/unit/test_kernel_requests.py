"""What the kernel of /v1 reads of a request: key, query, marker, moments, and its source.

Pages of lists: `tests/integration/test_kernel_pagination.py`.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from ipaddress import ip_address, ip_network
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.errors import InvalidInput
from cloudcore.keyring import Keyring
from cloudcore.serving.clients import ENOUGH, ProxyWatch, rate_subject, source_address
from cloudcore.web.idempotency import fingerprint, parse_key
from cloudcore.web.pagination import PageQuery, Pager, UuidPage
from cloudcore.web.query import PLUS, parse_query
from cloudcore.wire import LAST_MOMENT, moment_of, rfc3339


@pytest.mark.parametrize("key", [b"k", b"k" * 255, b'"k"', b"a b", b"~!"])
def test_printable_ascii_is_a_key_as_it_is(key: bytes) -> None:
    assert parse_key([key]) == key.decode()


@pytest.mark.parametrize(
    "values", [[b""], [b"k" * 256], [b"\xc3\xa9"], [b"a\tb"], [b"a\x7f"], [b"a", b"a"]]
)
def test_any_other_key_is_refused(values: list[bytes]) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_key(values)
    assert refused.value.params == {"field": "Idempotency-Key", "reason": "malformed"}


def test_without_the_header_there_is_no_key() -> None:
    assert parse_key([]) is None


def test_a_fingerprint_knows_its_parts_apart() -> None:
    requests = [
        *itertools.permutations((b"/a", b"b", b"c")),
        (b"/ab", b"", b"c"),
        (b"/ab", b"c", b""),
    ]
    assert len({fingerprint(*request) for request in requests}) == len(requests)
    assert fingerprint(b"/a", b"b", b"c") == fingerprint(b"/a", b"b", b"c")


class Query(PageQuery):
    name_prefix: str = ""
    status: Literal["tagged", "any"] | None = None
    deep: bool = False
    kind: Annotated[str, PLUS] = ""


def refusal_of(query: bytes) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as refused:
        parse_query(query, Query)
    return refused.value.params["field"], refused.value.params["reason"]


@pytest.mark.parametrize(
    "value",
    [b"", b"abc", b"1.5", b"5.0", b"1e1", b"+5", b"%2B5", b"%205", b"05", b"1_0", b"0x10",
     "٣".encode(), b"5%0A", b"1" * 5000, b"-0"],
)  # fmt: skip
def test_a_number_has_one_spelling(value: bytes) -> None:
    assert refusal_of(b"limit=" + value) == ("limit", "wrong_type")


@pytest.mark.parametrize("value", [b"0", b"-1", b"201", b"100000000000000000"])
def test_a_limit_out_of_range_is_not_clamped(value: bytes) -> None:
    assert refusal_of(b"limit=" + value) == ("limit", "out_of_range")


@pytest.mark.parametrize("value", [b"1", b"200"])
def test_a_limit_in_range_is_taken(value: bytes) -> None:
    assert parse_query(b"limit=" + value, Query).limit == int(value)


def test_a_plus_is_a_blank_but_where_it_is_marked() -> None:
    found = parse_query(b"name_prefix=a+b%2Bc&kind=a+b%2Bc%20d", Query)
    assert (found.name_prefix, found.kind) == ("a b+c", "a+b+c d")


@pytest.mark.parametrize(
    ("query", "field", "reason"),
    [
        (b"limit=1&limit=1", "limit", "duplicate"),
        (b"name_prefix=a&x=1&name%5Fprefix=b", "name_prefix", "duplicate"),
        (b"name_prefix=%00", "name_prefix", "invalid_text"),
        (b"name_prefix=%FF", "name_prefix", "invalid_text"),
        (b"status=x", "status", "not_allowed"),
        (b"status=", "status", "not_allowed"),
        (b"deep=1", "deep", "wrong_type"),
    ],
)
def test_known_parameters_are_checked(query: bytes, field: str, reason: str) -> None:
    assert refusal_of(query) == (field, reason)


def test_unknown_parameters_are_ignored() -> None:
    assert parse_query(b"utm=%FF&utm=2&&=&%FF=1", Query) == Query()


def test_the_text_of_a_parameter_is_taken_as_it_is() -> None:
    query = parse_query(b"name_prefix=%25_%2B+x&deep=true&status=any", Query)
    assert query == Query(name_prefix="%_+ x", deep=True, status="any")


@pytest.mark.parametrize(
    "marker",
    ["01890000-0000-7000-8000-00000000000", "01890000-0000-7000-8000-00000000000G",
     "{01890000-0000-7000-8000-000000000001}", "urn:uuid:01890000-0000-7000-8000-000000000001",
     "01890000-0000-7000-8000-000000000001%0A", "01890000000070008000000000000001"],
)  # fmt: skip
def test_a_documented_uuid_marker_is_a_uuid(marker: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_query(f"marker={marker}".encode(), UuidPage)
    assert refused.value.params["field"] == "marker"


KEYRING = Keyring(b"k" * 32)
ROWS = [("a", 1), ("b", 2), ("c", 3)]


class ListThings(PageQuery):
    prefix: str = ""


class ListOthers(PageQuery):
    suffix: str = ""


def marker(limit: int = 2, prefix: str = "", *within: str) -> str:
    pager = Pager(KEYRING, ListThings(limit=limit, prefix=prefix), within)
    _, meta = pager.cut(ROWS, 3, key=lambda row: row)
    assert isinstance(meta.marker, str)
    return meta.marker


@pytest.mark.parametrize(
    ("query", "within"),
    [
        (ListThings(marker=marker(), prefix="a"), ()),
        (ListOthers(marker=marker()), ()),
        (ListThings(marker=marker()), ("another account",)),
        (ListThings(marker=marker()[:-1]), ()),
        (ListThings(marker=marker() + "="), ()),
        (ListThings(marker=marker() + "!"), ()),
        (ListThings(marker=""), ()),
        (ListThings(marker="é"), ()),
        (ListThings(marker="AAAA"), ()),
    ],
)
def test_a_marker_of_elsewhere_is_refused(query: PageQuery, within: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as refused:
        Pager(KEYRING, query, within)
    assert refused.value.params == {"field": "marker", "reason": "malformed"}


@given(st.text("ABCDabcd0189-_=", max_size=80))
def test_no_text_is_a_marker_by_chance(text: str) -> None:
    with pytest.raises(InvalidInput):
        Pager(KEYRING, ListThings(marker=text), ())


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00.000000Z", 0),
        ("2027-01-15T08:00:00.000001Z", 1_800_000_000_000_001),
        ("1969-12-31T23:59:59.999999Z", -1),
    ],
)
def test_a_moment_and_its_text(text: str, moment: int) -> None:
    assert rfc3339(moment) == text
    assert moment_of(datetime.fromisoformat(text)) == moment


def test_the_ends_of_time_are_numbers_too() -> None:
    first = datetime.fromisoformat("0001-01-01T00:00:00+14:00")
    last = datetime.fromisoformat("9999-12-31T23:59:59-14:00")
    assert moment_of(first) < 0 < moment_of(last)
    assert rfc3339(LAST_MOMENT) == "9999-12-31T23:59:59.999999Z"
    assert moment_of(last) > LAST_MOMENT


PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "source"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", [b"198.51.100.1"], "192.0.2.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"203.0.113.9, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"203.0.113.9", b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"203.0.113.9, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", [b"junk"], "10.0.0.1"),
        ("10.0.0.1", [b"203.0.113.9, junk, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [b"\xff\xfe"], "10.0.0.1"),
        ("fd00::1", [b"2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", [b"198.51.100.1"], "198.51.100.1"),
        ("::ffff:192.0.2.1", [], "192.0.2.1"),
    ],
)
def test_the_nearest_stranger_counts(peer: str, forwarded: list[bytes], source: str) -> None:
    assert source_address(peer, forwarded, PROXIES) == ip_address(source)


@pytest.mark.parametrize("peer", [None, "", "/run/socket"])
def test_a_peer_without_an_address_has_none(peer: str | None) -> None:
    assert source_address(peer, [b"198.51.100.1"], PROXIES) is None


def test_the_holder_of_a_network_is_one_subject_of_limits() -> None:
    first, second = ip_address("2001:db8::1"), ip_address("2001:db8::ffff:0:0:1")
    assert rate_subject(first) == rate_subject(second) == "2001:db8::/64"
    assert rate_subject(ip_address("2001:db8:0:1::1")) != rate_subject(first)
    assert rate_subject(ip_address("192.0.2.1")) == "192.0.2.1"


TRUSTED = (ip_network("127.0.0.0/8"),)
FORWARDED = [(b"host", b"x"), (b"x-forwarded-for", b"203.0.113.9")]
DIRECT = [(b"host", b"x")]


def warnings(
    caplog: pytest.LogCaptureFixture, *requests: tuple[str, list[tuple[bytes, bytes]]]
) -> list[str]:
    watch = ProxyWatch()
    for peer, headers in requests:
        watch.note(peer, headers, TRUSTED)
    return [record.getMessage() for record in caplog.records]


def test_one_untrusted_proxy_that_forwards_all_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (told,) = warnings(caplog, *[("10.0.0.1", FORWARDED)] * (3 * ENOUGH))
    assert "ENTREPOT_TRUSTED_PROXIES=10.0.0.1" in told


@pytest.mark.parametrize("header", [b"forwarded", b"via", b"x-real-ip"])
def test_any_header_of_a_proxy_tells_of_it(header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert len(warnings(caplog, *[("10.0.0.1", [(header, b"x")])] * ENOUGH)) == 1


@pytest.mark.parametrize(
    "requests",
    [
        [("10.0.0.1", DIRECT)] * 100,
        [("127.0.0.1", FORWARDED)] * 100,
        [("10.0.0.1", FORWARDED)] * (ENOUGH - 1),
        [("10.0.0.1", FORWARDED), ("10.0.0.2", FORWARDED)] * 100,
        [("127.0.0.1", FORWARDED), *[("10.0.0.1", FORWARDED)] * 100],
    ],
)
def test_what_is_no_untrusted_proxy_is_not_named(
    requests: list[tuple[str, list[tuple[bytes, bytes]]]], caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(caplog, *requests) == []


def test_checks_of_health_in_between_hide_nothing(caplog: pytest.LogCaptureFixture) -> None:
    requests = [("10.0.0.1", FORWARDED), ("10.0.0.2", DIRECT), ("127.0.0.1", DIRECT)] * ENOUGH
    assert len(warnings(caplog, *requests)) == 1
