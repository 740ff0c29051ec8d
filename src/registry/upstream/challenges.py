"""Reading the challenges of a registry that wants a client to authenticate (RFC 9110 §11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cloudcore.outbound.destinations import Allowed, Destination, NotAllowed, check_url

_HTTPS: Final = 443
_SHARED: Final = frozenset(
    # Domains under which strangers have names.
    {
        *("azurecr.io", "amazonaws.com", "pkg.dev", "run.app", "github.io", "gitlab.io"),
        *("cloudfront.net", "herokuapp.com", "azurewebsites.net", "cloudapp.net", "ocir.io"),
        *("icr.io", "scw.cloud", "vercel.app", "netlify.app", "pages.dev", "workers.dev"),
        *("fly.dev", "ngrok.io", "ngrok.app", "duckdns.org", "dyndns.org", "blogspot.com"),
    }
)
_SECOND_LEVELS: Final = frozenset(
    # As in co.uk and com.au.
    {"ac", "co", "com", "edu", "go", "gob", "gov", "gouv", "ltd", "mil", "ne", "net", "or", "org"}
)
_COUNTRY_LETTERS: Final = 2


def check_realm(origin: str, realm: str, allowed: Allowed) -> Destination:
    """Return the destination of a realm that an upstream may name.

    Raises:
        NotAllowed: with the reason as a sentence.

    """
    upstream, found = check_url(origin, allowed), check_url(realm, allowed)
    if found.origin == upstream.origin:
        return found
    are_usual = all(each.scheme == "https" and each.port == _HTTPS for each in (upstream, found))
    domain = _domain(upstream.host)
    if are_usual and domain and (found.host == domain or found.host.endswith(f".{domain}")):
        return found
    raise NotAllowed(f"{found.authority} is no place of {upstream.authority}")


def _domain(host: str) -> str | None:
    """Return the domain that a host's owner has to itself, or None if that is not known.

    It is the name without its first label, unless strangers have names there.
    """
    domain = host.partition(".")[2]
    labels = domain.split(".")
    if len(labels) < 2 or ":" in host or labels[-1].isdigit():
        return None
    is_country = len(labels[-1]) == _COUNTRY_LETTERS
    is_suffix = len(labels) == 2 and is_country and labels[0] in _SECOND_LEVELS
    is_shared = any(domain == each or domain.endswith(f".{each}") for each in _SHARED)
    return None if is_suffix or is_shared else domain


_MAX_HEADER: Final = 4096
_SCHEME: Final = re.compile(r"[\s,]*([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:[ \t]+|[ \t]*(?=,)|[ \t]*\Z)")
_PARAMETER: Final = re.compile(
    r"[\s,]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"=]+))[ \t]*(?=,|\Z)"
)
_ESCAPED: Final = re.compile(r"\\(.)")


class Challenge(NamedTuple):
    """What a registry wants: ``basic``, or a ``bearer`` token from a realm."""

    scheme: str
    realm: str = ""
    service: str = ""
    error: str = ""
    """Why the token that came with the request does not suffice (RFC 6750 §3.1)."""


def read_challenges(headers: Sequence[str]) -> list[Challenge]:
    """Return the Bearer and Basic challenges of ``WWW-Authenticate`` headers, Bearer first.

    What cannot be read is left out; so is a parameter given twice, with its challenge.
    """
    found = [each for header in headers for each in _challenges(header[:_MAX_HEADER])]
    return sorted(found, key=lambda each: each.scheme == "basic")


def _challenges(header: str) -> Iterator[Challenge]:
    at = 0
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        given: list[tuple[str, str]] = []
        while parameter := _PARAMETER.match(header, at):
            at = parameter.end()
            name, quoted, token = parameter.groups()
            value = token if quoted is None else _ESCAPED.sub(r"\1", quoted)
            given.append((name.lower(), value))
        values = dict(given)
        if len(values) != len(given):
            continue
        kind = scheme[1].lower()
        if kind == "basic" or (kind == "bearer" and values.get("realm")):
            told = (values.get(name, "") for name in ("realm", "service", "error"))
            yield Challenge(kind, *told)
