"""References to other resources in response bodies."""

from __future__ import annotations

from cloudcore.uuids import Uuid
from cloudcore.wire import ResponseBody


class ResourceRef(ResponseBody):
    """A reference to another resource."""

    id: Uuid
    crn: str
    name: str


class KeyReference(ResponseBody):
    """A reference to a key, which keeps its id when the key is deleted."""

    id: Uuid
    crn: str | None
    """Null once the key is deleted."""
    name: str | None
    """Null once the key is deleted."""
