"""References to other resources, and to who acted, in response bodies."""

from __future__ import annotations

from typing import Protocol

from msgspec import UNSET, UnsetType

from cloudcore.iam.principal import read_source
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


class ActingSource(ResponseBody):
    """The person or service account that acted, itself or in a role."""

    crn: str
    name: str
    """E-mail address of a person, name of a service account; as it was then."""
    session_name: str | None
    """Name of the role session; null without a role."""


def acting_source(stored: str | None) -> ActingSource | None:
    """Return the source that a column holds; None if it is unknown."""
    source = read_source(stored)
    return None if source is None else ActingSource(**source._asdict())
