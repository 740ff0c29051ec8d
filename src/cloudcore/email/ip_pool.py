"""What an IP pool is: a named group of dedicated IP addresses."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, field

from cloudcore.resources.record import Record, fixed, given
from cloudcore.resources.resource import Filter, Resource


class IPPool(Record, frozen=True, kw_only=True):
    """A group of dedicated IP addresses that a message may be sent from."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=63),
        fixed("1 to 63 of a-z 0-9 . _ -; fixed", heading="NAME"),
    ]
    description: Annotated[str, Meta(max_length=1000), given('for persons; "" takes it away')] = ""
    tags: Annotated[dict[str, str], given("a tag of the IP pool")] = field(default_factory=dict)


IP_POOL: Final = Resource(
    record=IPPool,
    service="email",
    one="ip_pool",
    many="ip_pools",
    words="IP pool",
    actions={
        "create": "CreateIPPool",
        "list": "ListIPPools",
        "get": "GetIPPool",
        "update": "UpdateIPPool",
        "delete": "DeleteIPPool",
    },
    quota=50,
    filters=(Filter("name"),),
)
