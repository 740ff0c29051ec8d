"""The reference to another resource in response bodies."""

from __future__ import annotations

from cloudcore.uuids import Uuid
from cloudcore.wire import ResponseBody


class ResourceRef(ResponseBody):
    """A reference to another resource."""

    id: Uuid
    crn: str
    name: str
