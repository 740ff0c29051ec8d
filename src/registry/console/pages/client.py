"""The ``entrepot`` command as a file that anybody may download and install."""

from __future__ import annotations

import asyncio
from typing import Final

from litestar import get
from litestar.response import Response

from cloudcore.errors import NotFound
from cloudcore.identity.oauth_forms import values_of
from cloudcore.revisions import tags_named
from registry.client_wheel import client_wheel, wheel_name
from registry.console.admission import Requires
from registry.console.page_request import InjectedPage, PageResponse

_PATH: Final = "/console/client"


def address_of_client() -> str:
    """Return the path of the file, which names its version."""
    return f"{_PATH}/{wheel_name()}"


@get(f"{_PATH}/{{wheel:str}}", opt={"requires": Requires.NOTHING})
async def send_client(page: InjectedPage) -> PageResponse:
    """Send the wheel of this release, or 304 to who has it."""
    if page.parameters["wheel"] != wheel_name():
        raise NotFound("there is no such file")
    wheel = await asyncio.to_thread(client_wheel)
    headers = {"etag": f'"{wheel.sha256}"', "cache-control": "public, no-cache"}
    conditions = b",".join(values_of(page.scope["headers"], b"if-none-match")).decode("latin-1")
    if not tags_named(conditions).isdisjoint({wheel.sha256, "*"}):
        return Response(b"", status_code=304, headers=headers)
    headers["content-type"] = "application/octet-stream"
    return Response(wheel.content, headers=headers)


HANDLERS: Final = (send_client,)
