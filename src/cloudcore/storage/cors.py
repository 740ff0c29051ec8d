"""CORS rules of buckets: which web pages may read and write from a browser.

The response to a preflight follows the first rule that allows its origin, method and headers; the
response to any other request follows the first rule that allows its origin and method. As in S3,
``*`` may occur once and matches any characters. In an origin, ``*`` does not match ``/``, so a
wildcard in the host never matches a scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, field

from cloudcore.wire import RequestBody

METHODS: Final = ("GET", "PUT", "POST", "DELETE", "HEAD")
MAX_REQUESTED: Final = 100
"""Maximum headers that a preflight may name: each is compared with the patterns of all rules."""
MAX_AGE_SECONDS: Final = 365 * 86_400
_VARY: Final = ("vary", "Origin, Access-Control-Request-Headers, Access-Control-Request-Method")


_PATTERN = r"^[!-)+-~]*(?:\*[!-)+-~]*)?$(?!\n)"
_Origin = Annotated[str, Meta(min_length=1, max_length=256, pattern=_PATTERN)]
_Header = Annotated[str, Meta(min_length=1, max_length=128, pattern=_PATTERN)]
_Exposed = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[!-)+-~]+$(?!\n)")]


class CorsRule(NamedTuple):
    """A CORS rule of a bucket."""

    allowed_origins: Sequence[str]
    allowed_methods: Sequence[str]
    allowed_headers: Sequence[str] = ()
    expose_headers: Sequence[str] = ()
    max_age_seconds: int | None = None
    id: str | None = None
    """The id that S3 clients give the rule."""


class CorsRuleRecord(RequestBody):
    """Which web pages may read and write from a browser."""

    allowed_origins: Annotated[list[_Origin], Meta(min_length=1, max_length=100)]
    """One `*` may stand for any characters."""
    allowed_methods: Annotated[
        list[Literal["GET", "PUT", "POST", "DELETE", "HEAD"]], Meta(min_length=1, max_length=5)
    ]
    allowed_headers: Annotated[list[_Header], Meta(max_length=100)] = field(default_factory=list)
    """Headers that a page may send; one `*` may stand for any characters."""
    expose_headers: Annotated[list[_Exposed], Meta(max_length=100)] = field(default_factory=list)
    """Headers that a page may read."""
    max_age_seconds: Annotated[int, Meta(ge=0, le=MAX_AGE_SECONDS)] | None = None
    """How long a browser may keep the answer to a preflight."""


class CorsRules(RequestBody):
    """The CORS rules of a bucket; the first that fits a request applies."""

    cors_rules: Annotated[list[CorsRuleRecord], Meta(min_length=1, max_length=100)]


def cors_rules(rules: Sequence[CorsRule]) -> CorsRules:
    """Convert rules for a response."""
    names = CorsRuleRecord.__struct_fields__
    shown = [{name: getattr(rule, name) for name in names} for rule in rules]
    return CorsRules(cors_rules=[CorsRuleRecord(**each) for each in shown])


def find_rule(
    rules: Iterable[CorsRule], origin: str, method: str, headers: Sequence[str] = ()
) -> CorsRule | None:
    """Return the first rule that allows the origin, the method and all `headers`, or None.

    `headers` are in lower case. More than `MAX_REQUESTED` headers are never allowed.
    """
    if len(headers) > MAX_REQUESTED:
        return None
    for rule in rules:
        if (
            method in rule.allowed_methods
            and any(_allows_origin(pattern, origin) for pattern in rule.allowed_origins)
            and _allows_headers(rule, headers)
        ):
            return rule
    return None


def answer_headers(rule: CorsRule, origin: str) -> list[tuple[str, str]]:
    """Return the CORS response headers that `rule` grants to a page of `origin`."""
    allowed = "*" if "*" in rule.allowed_origins else origin
    headers = [("access-control-allow-origin", allowed), _VARY]
    if allowed != "*":
        headers.append(("access-control-allow-credentials", "true"))
    if rule.expose_headers:
        headers.append(("access-control-expose-headers", ", ".join(rule.expose_headers)))
    return headers


def preflight_headers(rule: CorsRule, origin: str, headers: Sequence[str]) -> list[tuple[str, str]]:
    """Return the headers that `rule` grants in the response to a preflight."""
    found = answer_headers(rule, origin)
    found.append(("access-control-allow-methods", ", ".join(rule.allowed_methods)))
    if headers:
        found.append(("access-control-allow-headers", ", ".join(headers)))
    if rule.max_age_seconds is not None:
        found.append(("access-control-max-age", str(rule.max_age_seconds)))
    return found


def requested_headers(value: str) -> list[str]:
    """Return the names in ``Access-Control-Request-Headers``, in lower case, without duplicates."""
    names = (each.strip().lower() for each in value.split(","))
    return list(dict.fromkeys(name for name in names if name))


def _allows_headers(rule: CorsRule, headers: Sequence[str]) -> bool:
    """Return True if a rule allows all headers. Must be fast: preflights are unauthenticated."""
    if not headers:
        return True
    patterns = [pattern.lower() for pattern in rule.allowed_headers]
    names = set(patterns)
    starts = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    ends = tuple(pattern[1:] for pattern in patterns if pattern.startswith("*"))
    others = [pattern.split("*") for pattern in patterns if "*" in pattern[1:-1]]
    return all(
        header in names
        or header.startswith(starts)
        or header.endswith(ends)
        or any(
            header.startswith(start)
            and header.endswith(end)
            and len(header) >= len(start) + len(end)
            for start, end in others
        )
        for header in headers
    )


def _allows_origin(pattern: str, origin: str) -> bool:
    start, star, end = pattern.partition("*")
    if not star or not (start or end):
        return bool(star) or pattern == origin
    between = origin[len(start) : len(origin) - len(end)]
    is_fit = len(origin) >= len(start) + len(end) and "/" not in between
    return is_fit and origin.startswith(start) and origin.endswith(end)
