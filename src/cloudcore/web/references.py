"""How a response body refers to another resource."""

from __future__ import annotations

from cloudcore.uuids import Uuid
from cloudcore.wire import ResponseBody


class ResourceRef(ResponseBody):
    """A reference to another resource."""

    id: Uuid
    crn: str
    name: str
