"""References to other resources in response bodies."""

from __future__ import annotations

from typing import Protocol

from msgspec import UNSET, UnsetType

from cloudcore.uuids import Uuid
from cloudcore.wire import ResponseBody, or_absent


class ResourceRef(ResponseBody):
    """A reference to another resource."""

    id: Uuid
    crn: str
    name: str


class KeyReference(ResponseBody):
    """A reference to a key, which keeps its id when the key is deleted."""

    id: Uuid
    crn: str | UnsetType = UNSET
    """Absent once the key is deleted."""
    name: str | UnsetType = UNSET
    """Absent once the key is deleted."""


class Identified(Protocol):
    """What has an id, and a CRN and a name until it is deleted, such as a key."""

    @property
    def id(self) -> str:
        """Return its id."""
        ...

    @property
    def crn(self) -> str | None:
        """Return its CRN, or None."""
        ...

    @property
    def name(self) -> str | None:
        """Return its name, or None."""
        ...


def reference_to(key: Identified) -> KeyReference:
    """Return the reference to a key for a response; nameless if the key was deleted."""
    return KeyReference(id=key.id, crn=or_absent(key.crn), name=or_absent(key.name))
