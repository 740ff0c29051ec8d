"""Buckets: what each holds, and its objects by folder, which come and go as files."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from litestar import get, post, put

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import BUCKETS
from registry.console.relayed import UPLOADING, Relayed

_API: Final = "/v1/buckets"
_ONE: Final = f"{BUCKETS}/{{bucket:str}}"
_PAGE: Final = 50
_FOLDER: Final = "/"


@get(BUCKETS)
async def list_buckets(page: InjectedPage) -> PageResponse:
    """List the buckets by name."""
    return await _list(page)


@post(BUCKETS)
async def create_bucket(page: InjectedPage) -> PageResponse:
    """Create a bucket under the platform key."""
    body = {"name": page.form.get("name", "").strip()}
    try:
        made = await page.api.post(_API, body, once=page.form.get("once", ""))
    except Refused as error:
        return await _list(page, complaint_of(error))
    return page.go(f"{BUCKETS}/{made['bucket']['name']}", "bucket-created")


@get(_ONE)
async def show_bucket(page: InjectedPage) -> PageResponse:
    """Show a bucket with the objects of a folder."""
    return await _show(page)


@post(f"{_ONE}/delete")
async def delete_bucket(page: InjectedPage) -> PageResponse:
    """Ask, or with ``confirmed`` in the form delete the bucket."""
    if "confirmed" not in page.form:
        bucket = await _bucket(page)
        await page.require("storage:DeleteBucket", bucket["crn"])
        return page.show("bucket_question.html", bucket=bucket, base=_path(page), key="")
    try:
        await page.api.change("DELETE", _api(page))
    except Refused as error:
        if error.status != 409:
            raise
        return await _show(page, complaint_of(error))
    return page.go(BUCKETS, "bucket-deleted")


@post(f"{_ONE}/delete-object")
async def delete_bucket_object(page: InjectedPage) -> PageResponse:
    """Ask, or with ``confirmed`` in the form delete an object."""
    key = page.form.get("key", "")
    if "confirmed" not in page.form:
        bucket = await _bucket(page)
        return page.show("bucket_question.html", bucket=bucket, base=_path(page), key=key)
    await page.api.change("DELETE", f"{_api(page)}/objects/{key}")
    folder = key[: key.rfind(_FOLDER) + 1]
    return page.go(_in_folder(page, folder), "object-deleted")


@get(f"{_ONE}/download")
async def download_object(page: InjectedPage) -> PageResponse:
    """Send an object as a file."""
    key = page.query.get("key", "")
    name = key.rstrip(_FOLDER).rpartition(_FOLDER)[2] or "object"
    return Relayed(page, "GET", f"{_api(page)}/objects/{key}", name)


@put(f"{_ONE}/upload")
async def upload_object(page: InjectedPage) -> PageResponse:
    """Store the body of the request as an object; a script of the page sends it."""
    return Relayed(page, "PUT", f"{_api(page)}/objects/{page.query.get('key', '')}")


async def _show(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    bucket, prefix = await _bucket(page), page.query.get("prefix", "")
    page.asks_about(bucket["crn"], f"{bucket['crn']}/*")
    rights = await page.rights()
    found: dict[str, Any] | None = None
    if rights.may("storage:ListObjects", bucket["crn"]):
        found = await page.api.get(
            f"{_api(page)}/objects",
            prefix=prefix,
            delimiter=_FOLDER,
            marker=page.query.get("marker"),
            limit=_PAGE,
        )
    shown = page.show(
        "bucket.html",
        complaint.status,
        bucket=bucket,
        base=_path(page),
        prefix=prefix,
        here=_in_folder(page, prefix),
        above=_above(page, prefix),
        folders=[(each, _in_folder(page, each)) for each in found["common_prefixes"]]
        if found
        else [],
        found=found,
        complaint=complaint,
    )
    if rights.may("storage:PutObject", f"{bucket['crn']}/*"):
        shown.headers["content-security-policy"] = UPLOADING
    return shown


async def _list(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    found = await page.api.get(_API, marker=page.query.get("marker"), limit=_PAGE)
    return page.show(
        "buckets.html",
        complaint.status,
        buckets=found["buckets"],
        meta=found["meta"],
        complaint=complaint,
    )


async def _bucket(page: PageRequest) -> dict[str, Any]:
    return dict((await page.api.get(_api(page)))["bucket"])


def _above(page: PageRequest, prefix: str) -> str:
    """Return the address of the folder above a prefix; empty at the top."""
    if not prefix:
        return ""
    return _in_folder(page, prefix[: prefix.rstrip(_FOLDER).rfind(_FOLDER) + 1])


def _in_folder(page: PageRequest, prefix: str) -> str:
    return f"{_path(page)}?{urlencode({'prefix': prefix})}" if prefix else _path(page)


def _path(page: PageRequest) -> str:
    return f"{BUCKETS}/{page.parameters['bucket']}"


def _api(page: PageRequest) -> str:
    return f"{_API}/{page.parameters['bucket']}"


HANDLERS: Final = (
    list_buckets,
    create_bucket,
    show_bucket,
    delete_bucket,
    delete_bucket_object,
    download_object,
    upload_object,
)
