"""Queues: what each holds, and the purge. Programs do the rest."""

from __future__ import annotations

from typing import Any, Final

from litestar import get, post

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.creation import create_named
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import QUEUES

_API: Final = "/v1/queues"
_ONE: Final = f"{QUEUES}/{{queue:str}}"
_PAGE: Final = 50


@get(QUEUES)
async def list_queues(page: InjectedPage) -> PageResponse:
    """List the queues, the oldest first."""
    return await _list(page)


@post(QUEUES)
async def create_queue(page: InjectedPage) -> PageResponse:
    """Create a queue with the usual settings."""
    return await create_named(page, _API, "queue", QUEUES, "queue-created", _list)


@get(_ONE)
async def show_queue(page: InjectedPage) -> PageResponse:
    """Show a queue with what it holds."""
    return await _show(page)


@post(f"{_ONE}/purge")
async def purge_queue(page: InjectedPage) -> PageResponse:
    """Ask, or with ``confirmed`` in the form delete all messages."""
    if "confirmed" not in page.form:
        return await _ask(page, "queue:PurgeQueue", "purge")
    await page.api.post(f"{_api(page)}/purge")
    return page.go(_path(page), "queue-purged")


@post(f"{_ONE}/delete")
async def delete_queue(page: InjectedPage) -> PageResponse:
    """Ask, or with ``confirmed`` in the form delete the queue."""
    if "confirmed" not in page.form:
        return await _ask(page, "queue:DeleteQueue", "delete")
    try:
        await page.api.change("DELETE", _api(page))
    except Refused as error:
        if error.status != 409:
            raise
        return await _show(page, complaint_of(error))
    return page.go(QUEUES, "queue-deleted")


async def _ask(page: PageRequest, action: str, act: str) -> PageResponse:
    queue = await _queue(page)
    await page.require(action, queue["crn"])
    return page.show("queue_question.html", queue=queue, base=_path(page), act=act)


async def _show(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    queue = await _queue(page)
    page.asks_about(queue["crn"])
    return page.show(
        "queue.html", complaint.status, queue=queue, base=_path(page), complaint=complaint
    )


async def _list(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    found = await page.api.get(_API, marker=page.query.get("marker"), limit=_PAGE)
    return page.show(
        "queues.html",
        complaint.status,
        queues=found["queues"],
        meta=found["meta"],
        complaint=complaint,
    )


async def _queue(page: PageRequest) -> dict[str, Any]:
    return dict((await page.api.get(_api(page)))["queue"])


def _path(page: PageRequest) -> str:
    return f"{QUEUES}/{page.parameters['queue']}"


def _api(page: PageRequest) -> str:
    return f"{_API}/{page.parameters['queue']}"


HANDLERS: Final = (list_queues, create_queue, show_queue, purge_queue, delete_queue)
