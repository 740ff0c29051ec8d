"""Where ``/v1`` has the rules of the pull-through cache, and which of them an image is under."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from registry.cli.api import Record
from registry.cli.failure import Missing, Misuse
from registry.cli.output import printable
from registry.cli.references import parse_typed_reference
from registry.cli.rights.lookup import Kind
from registry.oci.media_types import DOCKER_MANIFEST_LIST, OCI_INDEX

RULE: Final = Kind(
    "mirror",
    "rule of the pull-through cache",
    "/v1/pull-through-cache-rules",
    "pull_through_cache_rule",
    "pull_through_cache_rules",
    name="prefix",
)

_INDEXES: Final = (OCI_INDEX, DOCKER_MANIFEST_LIST)


class MirroredImage(NamedTuple):
    """An image under a rule."""

    name: str
    """With the account's handle."""
    reference: str
    """Tag or digest."""


def mirrored_image(rules: Sequence[Record], written: str) -> MirroredImage:
    """Return the image that a text names: ``docker-hub/library/alpine:3``, with host or without.

    Raises:
        Missing: no rule has its name.
        Misuse: it is malformed.

    """
    reference = parse_typed_reference(written)
    for rule in rules:
        place = f"{rule['uri'].partition('/')[2]}/"  # the handle and the prefix
        host = rule["uri"].partition("/")[0]
        for before in (f"{host}/{place}", place, f"{rule['prefix']}/"):
            if reference.repository.startswith(before):
                name = place + reference.repository.removeprefix(before)
                return MirroredImage(name, reference.digest or reference.tag or "latest")
    raise Missing(
        f"no rule caches {printable(written)!r}; 'entrepot mirror list' shows the prefixes there "
        "are, and what follows one is the image's name at the upstream"
    )


def platforms_of(texts: Sequence[str], machine: str) -> frozenset[str] | None:
    """Return the wanted platforms as ``os/architecture[/variant]``, or None for all.

    Without one, Linux on the architecture of this machine.

    Raises:
        Misuse: one is malformed.

    """
    if "all" in texts:
        return None
    for text in texts:
        if not all(text.split("/")) or text.count("/") not in (1, 2):
            raise Misuse(f"a platform is like linux/arm64, or all, not {printable(text)!r}")
    own = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}.get(machine, machine)
    return frozenset(texts) or frozenset({f"linux/{own}"})


def is_wanted(descriptor: Record, platforms: frozenset[str] | None) -> bool:
    """Return True if a child of an index is of one of the platforms, or an index for any."""
    if platforms is None or (
        descriptor.get("mediaType") in _INDEXES and not descriptor.get("platform")
    ):
        return True
    platform = descriptor.get("platform") or {}
    short = f"{platform.get('os')}/{platform.get('architecture')}"
    return short in platforms or f"{short}/{platform.get('variant')}" in platforms
