"""What the headers of upstreams say."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.outbound.destinations import Allowed, NotAllowed
from cloudcore.outbound.http_client import BodyRate
from cloudcore.outbound.http_connection import AnswerHead, Unreachable
from registry.upstream import response_headers
from registry.upstream.authentication import Challenge, check_realm, read_challenges
from registry.upstream.base import RateLimit
from registry.upstream.lists import RefusedLink, next_page
from registry.upstream.response_headers import ContentRange

NOW = 1_800_000_000 * MICROSECONDS
DIGEST = "sha256:" + "a" * 64
ALLOWED = Allowed("ENTREPOT_UPSTREAM_ALLOWED", ("http://hub.internal:5000", "http://10.0.0.1"))


def head(**headers: str) -> AnswerHead:
    return AnswerHead(200, [(name.replace("_", "-"), value) for name, value in headers.items()])


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes 3-9/10", ContentRange(3, 9, 10)),
        ("bytes 0-0/*", ContentRange(0, 0, None)),
        *(
            (text, None)
            for text in (
                *("", "bytes 3-9", "bytes 9-3/10", "bytes 3-10/10", "bytes -9/10", "bytes */10"),
                *("bytes=3-9/10", "items 3-9/10", "bytes +3-9/10", "bytes 3-9/10\n"),
                f"bytes 3-{'9' * 30}/*",
            )
        ),
    ],
)
def test_a_content_range(text: str, found: ContentRange | None) -> None:
    assert response_headers.content_range(head(content_range=text)) == found


def test_a_header_that_stands_twice_says_nothing() -> None:
    twice = AnswerHead(200, [("docker-content-digest", DIGEST), ("docker-content-digest", DIGEST)])
    assert response_headers.content_digest(twice) is None
    assert response_headers.content_digest(head(docker_content_digest=DIGEST)) == DIGEST
    assert response_headers.content_digest(head(docker_content_digest=DIGEST.upper())) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("7", 7), ("0", 1), ("", 60), ("-1", 60), ("soon", 60), ("1.5", 60), ("\uff19", 60)),
        *(("999999999", 86400), ("9" * 400, 60)),
        *(("Fri, 15 Jan 2027 08:00:30 GMT", 30), ("Fri, 15 Jan 2027 07:00:00 GMT", 1)),
        ("Fri, 15 Jan 9999 08:00:30 GMT", 86400),
        ("Fri, 15 Jan 2027 08:00:30 -0000", 30),
        (f"Fri, 15 Jan {'9' * 20} 08:00:30 GMT", 60),
        (f"Fri, 15 Jan 2027 08:00:30 +{'9' * 20}", 60),
    ],
)
@pytest.mark.usefixtures("in_tokyo")
def test_retry_after_is_bounded(text: str, seconds: int) -> None:
    assert response_headers.retry_at(head(retry_after=text), NOW) == NOW + seconds * MICROSECONDS


@pytest.mark.parametrize(
    ("limit", "remaining", "found"),
    [
        ("100;w=21600", "76;w=21600", RateLimit(100, 76, 21600)),
        ("100", "0", RateLimit(100, 0, None)),
        ("", "5", RateLimit(None, 5, None)),
        ("100;w=21600", "", None),
        ("100", "-1", None),
        ("100", "1e3", None),
    ],
)
def test_a_rate_limit(limit: str, remaining: str, found: RateLimit | None) -> None:
    assert (
        response_headers.rate_limit(head(ratelimit_limit=limit, ratelimit_remaining=remaining))
        == found
    )


def test_a_rate_limit_under_its_older_name() -> None:
    assert response_headers.rate_limit(head(x_ratelimit_remaining="5")) == RateLimit(None, 5, None)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (
            'Bearer realm="https://auth.example.com/token",service="a",scope="repository:b:pull"',
            [Challenge("bearer", "https://auth.example.com/token", "a")],
        ),
        ('BEARER Realm = "https://a/\\"b"', [Challenge("bearer", 'https://a/"b')]),
        ("Basic", [Challenge("basic")]),
        ('Basic realm="a", Bearer realm="b"', [Challenge("bearer", "b"), Challenge("basic", "a")]),
        ('Negotiate, Basic realm="a, Bearer b"', [Challenge("basic", "a, Bearer b")]),
        ("Bearer realm=token", [Challenge("bearer", "token")]),
        ('Bearer realm="a",realm="b"', []),
        ("Bearer", []),
        ('Bearer service="a"', []),
        ('Bearer realm="a', []),
        ("", []),
        (",,,", []),
    ],
)
def test_challenges(header: str, found: list[Challenge]) -> None:
    assert read_challenges([header]) == found


def test_a_long_challenge_is_read_in_no_time() -> None:
    for text in ('Bearer realm="' + "\\" * 100_000, "a " * 50_000, 'a="' * 30_000, "=," * 50_000):
        assert not read_challenges([text])


@pytest.mark.parametrize(
    ("origin", "realm"),
    [
        ("https://registry-1.docker.io", "https://auth.docker.io/token"),
        ("https://registry.gitlab.com", "https://gitlab.com/jwt/auth"),
        ("https://ghcr.io", "https://ghcr.io/token"),
        ("https://team.azurecr.io", "https://team.azurecr.io/oauth2/token"),
        ("https://hub.example.com:5000", "https://HUB.example.com:5000/auth?a=b"),
        ("http://hub.internal:5000", "http://hub.internal:5000/token"),
        ("https://registry.example.co.uk", "https://auth.example.co.uk/token"),
        ("https://8.8.8.8", "https://8.8.8.8/token"),
    ],
)
def test_a_realm_of_the_upstream(origin: str, realm: str) -> None:
    check_realm(origin, realm, ALLOWED)


@pytest.mark.parametrize(
    ("origin", "realm"),
    [
        ("https://registry-1.docker.io", "https://docker.io.evil.example/token"),
        ("https://registry-1.docker.io", "https://evildocker.io/token"),
        ("https://registry-1.docker.io", "https://auth.docker.io:8443/token"),
        ("https://registry-1.docker.io", "http://auth.docker.io/token"),
        ("https://registry-1.docker.io", "https://auth.docker.com/token"),
        ("https://ghcr.io", "https://evil.io/token"),
        ("https://team.azurecr.io", "https://other.azurecr.io/oauth2/token"),
        ("https://1.dkr.ecr.eu-west-1.amazonaws.com", "https://evil.ecr.eu-west-1.amazonaws.com/"),
        ("https://example.co.uk", "https://evil.co.uk/token"),
        ("https://hub.example.com:5000", "https://hub.example.com/token"),
        ("https://hub.example.com:5000", "https://hub.example.com:5001/token"),
        ("https://hub.example.com:5000", "https://auth.example.com:5000/token"),
        ("http://hub.internal:5000", "http://10.0.0.1/token"),
        ("http://hub.internal:5000", "https://hub.internal:5000/token"),
        ("https://8.8.8.8", "https://8.8.8.9/token"),
        ("https://8.8.8.8", "https://9.8.8.8/token"),
    ],
)
def test_a_realm_of_somebody_else(origin: str, realm: str) -> None:
    with pytest.raises(NotAllowed):
        check_realm(origin, realm, ALLOWED)


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ('</v2/a/referrers/d?n=2>; rel="next"', "/v2/a/referrers/d?n=2"),
        ("<https://hub.example.com/v2/a/referrers/d?n=2>;rel=next", "/v2/a/referrers/d?n=2"),
        ('<?n=2>; rel="next"', "/v2/a/referrers/d?n=2"),
        ('</v2/a/referrers/d?n=2>; rel="prev"', None),
        ('</next>; rel="first"; title="next"', None),
        ("", None),
    ],
)
def test_the_next_page_is_one_of_the_same_referrers(link: str, path: str | None) -> None:
    assert next_page(head(link=link), "https://hub.example.com", "/v2/a/referrers/d") == path


@pytest.mark.parametrize(
    "link",
    [
        '<https://evil.example/v2/a/referrers/d?n=2>; rel="next"',
        '<http://hub.example.com/v2/a/referrers/d?n=2>; rel="next"',
        '<https://[/v2/a/referrers/d?n=2>; rel="next"',
        '</v2/b/referrers/d?n=2>; rel="next"',
        '</v2/a/referrers/d?n=2>; title="more"; rel=next',
        '</v2/a/referrers/d?n=2>; rel = "last Next"',
        f'<?{"n" * 4000}>; rel="next"',
    ],
)
def test_a_next_page_that_is_not_read_is_not_the_end_of_the_list(link: str) -> None:
    with pytest.raises(RefusedLink):
        next_page(head(link=link), "https://hub.example.com", "/v2/a/referrers/d")


def test_a_slow_upstream_is_given_up_and_a_slow_reader_is_not() -> None:
    pace = BodyRate(window=60, lowest_rate=1000)
    for _ in range(1000):
        pace.add(1, 0.0)  # our disk was slow: nothing was waited for
    for _ in range(59):
        pace.add(10, 1.0)
    with pytest.raises(Unreachable, match="fewer than 1000 bytes"):
        pace.add(10, 1.0)
    fast = BodyRate(window=60, lowest_rate=1000)
    for _ in range(1000):
        fast.add(1001, 1.0)
