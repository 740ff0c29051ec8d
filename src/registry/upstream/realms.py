"""Which realms a registry may send its clients to with their credentials.

A registry names the place where tokens are given. One that was taken over, or a page in between,
could name a place of its own and collect credentials (CVE-2026-33540). So a realm is bound to the
upstream: the same origin, or, on the usual port of https for both, a host under the same domain:
``auth.docker.io`` for ``registry-1.docker.io``, ``gitlab.com`` for ``registry.gitlab.com``.
"""

from __future__ import annotations

from typing import Final

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
