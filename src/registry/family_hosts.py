"""Hosts of their own: what each name serves by the setting ``family_hosts``.

What has none is at the host of ``public_url``. A name serves what is its own and nothing else,
besides what every name serves: the probes, the reference, and the regions, where all names are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from registry.families import FAMILIES
from registry.public_url import without_port
from registry.setting_texts import CONSOLE, PULL, SettingsError
from registry.settings import Settings

_PATHS: Final[Mapping[str, Sequence[str]]] = {
    each.host: each.paths for each in FAMILIES if each.host and each.paths
}
PARTS: Final = (PULL, CONSOLE, *_PATHS)
"""What may have a host of its own."""
_EVERYWHERE: Final = (
    "/healthz",
    "/readyz",
    "/v1/openapi.json",
    "/v1/reference",
    *(path for each in FAMILIES if each.host is None for path in each.paths),
)


def parts_by_name(settings: Settings) -> Mapping[str, frozenset[str]]:
    """Return what each host name serves, without ports; nothing if one name serves all.

    Raises:
        SettingsError: there is no such part.

    """
    own = settings.own_hosts
    if not own:
        return {}
    if unknown := [part for part in own if part not in PARTS]:
        raise SettingsError(
            f"family_hosts: {unknown[0]!r} has no host of its own; before the = is one of"
            f" {', '.join(PARTS)}"
        )
    main = urlsplit(settings.public_url).netloc
    pairs = [(without_port(host), part) for part in PARTS for host in own.get(part, (main,))]
    names = dict.fromkeys((without_port(main), *(name for name, _ in pairs)))
    return {each: frozenset(part for name, part in pairs if name == each) for each in names}


def paths_of(parts: Iterable[str]) -> tuple[bytes, ...]:
    """Return the first segments of the control plane's paths at a name that serves `parts`."""
    own = (path for part in parts for path in _PATHS.get(part, ()))
    return tuple(path.encode() for path in (*_EVERYWHERE, *sorted(own)))
