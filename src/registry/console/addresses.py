"""Paths of pages, links between the pages of a list, and addresses of repositories.

The address of a repository names it as an image reference does:

    /console/acme/web/frontend                    the repository
    /console/acme/web/frontend:1.4                a tag
    /console/acme/web/frontend@sha256:…           an image
    /console/acme/web/frontend/-/lifecycle        another page of the repository
    /console/acme/web/frontend@sha256:…/-/pins    a form of the image

No component of a name is ``-``. An account whose handle is a word of the console's own addresses
has its repositories below ``/console/-``. Repositories of other accounts have their id in place of
the name: ``/console/repositories/{id}/tags/1.4``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from registry.errors import NameInvalid
from registry.oci.reference import Name, parse_name

CONSOLE: Final = "/console"
HOME: Final = "/console/repositories"
SIGN_IN: Final = "/console/sign-in"
SIGNED_IN: Final = "/console/signed-in"
SIGNED_OUT: Final = "/console/signed-out"
ROLES: Final = "/console/roles"
SETTINGS: Final = "/console/settings"
KEYS: Final = f"{SETTINGS}/keys"
SERVICE_ACCOUNTS: Final = "/console/service-accounts"
POLICIES: Final = "/console/policies"
ACCOUNT_ROLES: Final = "/console/account-roles"
PEOPLE: Final = "/console/people"
MY_ACCOUNT: Final = "/console/my-account"
CONTAINER_PASSWORDS: Final = f"{MY_ACCOUNT}/container-passwords"
ACCOUNTS: Final = "/console/accounts"
SIMULATOR: Final = "/console/simulator"
AUDIT: Final = "/console/audit"
USAGE: Final = "/console/usage"

REPOSITORY: Final = f"{HOME}/{{repository:str}}"
IMAGE: Final = f"{REPOSITORY}/images/{{digest:str}}"

OWN_WORDS: Final = frozenset(
    {
        "account-roles",
        "accounts",
        "audit",
        "client",
        "my-account",
        "overview",
        "people",
        "policies",
        "repositories",
        "roles",
        "search",
        "service-accounts",
        "services",
        "settings",
        "sign-in",
        "sign-out",
        "simulator",
        "signed-in",
        "signed-out",
        "static",
        "storage",
        "usage",
    }
)
"""The first words of routes after ``/console/``."""


NAMED: Final = "-"
"""Stands for the repository's id in the routed path of an address with the repository's name."""

_FOREIGN: Final = frozenset({"v1", "v2", "console", "healthz", "readyz"})
"""The first words of other paths of this host."""


class RepositoryPath(NamedTuple):
    """The address of a repository's first page (`base`), by the repository's name or by its id."""

    base: str
    is_named: bool

    def __str__(self) -> str:
        return self.base

    def tab(self, name: str) -> str:
        """Return the path of another page of the repository, or of a form on it."""
        return f"{self.base}/-/{name}" if self.is_named else f"{self.base}/{name}"

    def image(self, digest: str, form: str = "") -> str:
        """Return the path of an image, or of a form on its page."""
        if not self.is_named:
            return f"{self.base}/images/{digest}{form and '/'}{form}"
        return f"{self.base}@{digest}{form and '/-/'}{form}"

    def tag(self, tag: str, form: str = "") -> str:
        """Return the path of a tag, or of a form on its page."""
        if not self.is_named:
            return f"{self.base}/tags/{tag}{form and '/'}{form}"
        return f"{self.base}:{tag}{form and '/-/'}{form}"


def path_of_name(handle: str, repository: str) -> RepositoryPath:
    """Return the address of a repository by its name."""
    before = f"{CONSOLE}/-" if handle in OWN_WORDS else CONSOLE
    return RepositoryPath(f"{before}/{handle}/{repository}", is_named=True)


def path_of_id(repository_id: str) -> RepositoryPath:
    """Return the address of a repository by its id."""
    return RepositoryPath(f"{HOME}/{repository_id}", is_named=False)


def path_of_record(account: str, repository: Mapping[str, Any]) -> RepositoryPath:
    """Return a repository's address: by name if it belongs to `account` (a handle), else by id.

    A `repository` without a `uri` belongs to the account.
    """
    name = str(repository["name"])
    uri = str(repository.get("uri", f"/{account}/{name}"))
    if uri.endswith(f"/{account}/{name}"):
        return path_of_name(account, name)
    return path_of_id(str(repository["id"]))


class Address(NamedTuple):
    """A parsed page address that names a repository."""

    name: Name
    routed: str
    """The path by which the page's route is found."""


def parse_address(path: str) -> Address | None:
    """Parse a page's path; return None if it does not name a repository."""
    if not path.startswith(f"{CONSOLE}/"):
        return None
    rest = path.removeprefix(f"{CONSOLE}/")
    if rest.startswith("-/"):
        rest = rest.removeprefix("-/")
    elif rest.partition("/")[0] in OWN_WORDS:
        return None
    reference, dash, below = rest.partition("/-/")
    found = _parse_reference(reference)
    if found is None:
        return None
    name, tag, digest = found
    part = f"/images/{digest}" if digest else f"/tags/{tag}" if tag else ""
    return Address(name, f"{HOME}/{NAMED}{part}{f'/{below}' if dash else ''}")


def page_of_reference(path: str) -> str | None:
    """Return the page's address for an image reference without host, or None for other text."""
    reference = path.removeprefix("/")
    if reference.partition("/")[0] in _FOREIGN:
        return None
    found = _parse_reference(reference)
    if found is None:
        return None
    name, tag, digest = found
    there = path_of_name(name.handle, name.repository)
    return there.image(digest) if digest else there.tag(tag) if tag else there.base


def _parse_reference(reference: str) -> tuple[Name, str, str] | None:
    """Return name, tag and digest of ``account/name[:tag][@digest]``; only the name is checked."""
    named, _, digest = reference.partition("@")
    named, _, tag = named.partition(":")
    try:
        return parse_name(named), tag, digest
    except NameInvalid:
        return None


_FIRST: Final = "-"
"""Stands for the first page, which has no marker."""
_MOST: Final = 20
"""Maximum number of markers in an address; a marker has some 100 characters."""


class PageLinks(NamedTuple):
    """Query strings of the previous and the next page of a list, without the list's filters."""

    before: str | None
    """For the previous page: empty if that is the first; None if there is none or it is unknown."""
    after: str | None


def page_links(
    query: Mapping[str, str], meta: Mapping[str, Any], parameter: str = "marker"
) -> PageLinks:
    """Return the links to the previous and next page; the query's `parameter` has the marker."""
    past = "before" if parameter == "marker" else f"{parameter}-before"
    here = query.get(parameter)
    known = query.get(past, "").split(",") if query.get(past) else []
    before = after = None
    if here and known:
        *earlier, last = known
        before = "" if last == _FIRST else _encoded({parameter: last, past: ",".join(earlier)})
    if meta["has_more"]:
        trail = ",".join([*known, here or _FIRST][-_MOST:])
        after = _encoded({parameter: meta["marker"], past: trail})
    return PageLinks(before, after)


def address_of(fields: Mapping[str, str | None]) -> str:
    """Return the query string of a list's filters; a string of `PageLinks` may be appended."""
    return f"?{_encoded(fields)}"


def _encoded(fields: Mapping[str, str | None]) -> str:
    return urlencode({name: value for name, value in fields.items() if value})
