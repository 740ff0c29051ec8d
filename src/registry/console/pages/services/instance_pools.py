"""Instance pools, with their instances and the output of one instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cloudcore.compute import instance_pool
from registry.console.control_plane import Refused, unless_refused
from registry.console.nouns.handlers import api_of
from registry.console.nouns.noun_pages import CREATED, Column, RecordJson
from registry.console.nouns.resources import noun_of, slow_deletion
from registry.console.page_request import PageRequest

_STATES: Final = {
    "provisioning": "Is being started",
    "active": "Runs",
    "scaling": "Is being changed",
    "degraded": "Something is wrong",
    "deleting": "Is being ended",
}
_STATE: Final = Column("State", "status", "mark", _STATES, usual="active")
_LOG_BYTES: Final = 16_384
"""Maximum bytes of output that a page shows."""
_NOUN: Final = noun_of(
    instance_pool.INSTANCE_POOL,
    "An instance pool keeps instances of an image of this registry running.",
)
_SHAPE: Final = ("image", "size", "memory_mb", "cpu_millis", "description", "command", "tags")
"""The fields that the form can change."""
_SHOWN: Final = ("image", "image_digest", "node", "command", "memory_mb", "cpu_millis", "ports")


async def _read_instances(page: PageRequest, _pool: RecordJson) -> Mapping[str, Any]:
    """Read the pool's instances, and the output of the instance that the query names.

    The instances are None if the role may not list them.
    """
    path = f"{api_of(page, INSTANCE_POOL)}/instances"
    found = await unless_refused(page.api.get(path, limit=100))
    instances = None if found is None else found["instances"]
    shown = {"instances": instances, "of_instance": "", "unread": ""}
    asked = page.query.get("logs", "")
    if asked not in {each["id"] for each in instances or ()}:
        return shown
    try:
        written = await page.api.read(f"{path}/{asked}/logs", tail=_LOG_BYTES)
    except Refused as refused:  # another machine may have it
        return {**shown, "of_instance": asked, "unread": str(refused), "written": ""}
    return {**shown, "of_instance": asked, "written": written.decode(errors="replace")}


INSTANCE_POOL: Final = replace(
    _NOUN,
    columns=(_STATE, Column("Image", "image"), Column("Size", "size", "number"), CREATED),
    details=(
        *(each for each in _NOUN.details if each.field in _SHOWN),
        Column("Role", "role", "reference"),
        Column("Subnet", "subnet", "reference"),
        CREATED,
    ),
    updates=tuple(
        each._replace(is_more=each.is_more and each.field != "size")
        for each in noun_of(replace(instance_pool.INSTANCE_POOL, methods=("update",))).updates
        if each.field in _SHAPE
    ),
    methods=(
        slow_deletion(
            instance_pool.INSTANCE_POOL.action("delete"),
            "The instances are being ended, and then the pool is gone.",
            "All its instances are ended, and what they wrote is gone.",
        ),
    ),
    commands=(
        ("What runs", "entrepot instances list NAME"),
        ("What an instance wrote", "entrepot instances logs NAME ID"),
    ),
    parts="noun_instance_pool.html",
    shows={"states": _STATES},
    more=_read_instances,
)
