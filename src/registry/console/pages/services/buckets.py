"""Buckets, and their objects by folder; objects are uploaded and downloaded as files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from litestar import get, post, put
from litestar.response import Response
from litestar.types import Receive, Scope, Send
from markupsafe import Markup

from cloudcore.storage import bucket
from registry.console.assets import UPLOADING
from registry.console.nouns.handlers import api_of, path_of, read_one
from registry.console.nouns.noun_pages import CREATED, TAGS, Column, RecordJson, name_of
from registry.console.nouns.resources import deletion, noun_of
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_REPLACED: Final = (b"content-disposition", b"cache-control", b"expires")
"""Headers stored with an object that are not passed on: the console sets its own."""
_OF_BODY: Final = (b"content-length", b"content-type", b"transfer-encoding")


class RelayedObject(Response[None]):
    """A download or upload of a bucket's object, relayed with the session's token."""

    def __init__(self, page: PageRequest, method: str, path: str, file_name: str = "") -> None:
        """Send the object at `path` to the browser (GET), or store the browser's body there (PUT).

        The browser saves a downloaded object as a file named `file_name`.
        """
        super().__init__(None)
        self._page = page
        self._method = method
        self._path = path
        self._file_name = file_name

    def to_asgi_response(  # type: ignore[override]
        self, *_: object, **_options: object
    ) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """Return an ASGI application that relays the bytes."""
        is_get = self._method == "GET"
        fields = (b"range", b"if-range") if is_get else _OF_BODY
        method = self._page.scope["method"] if is_get else self._method  # may be HEAD

        async def relay(_scope: Scope, _receive: Receive, send: Send) -> None:
            await self._page.api.relay(
                method,
                self._path,
                self._page.receive,
                send,  # type: ignore[arg-type] # of any ASGI server
                fields,
                self._answered,
            )

        return relay

    def _answered(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Make the browser save the bytes as a file, and neither display nor cache them."""
        if self._method == "GET":
            named = f"attachment; filename*=UTF-8''{quote(self._file_name, safe='')}"
            headers[:] = [pair for pair in headers if pair[0].lower() not in _REPLACED]
            headers.append((b"content-disposition", named.encode()))


_FOLDER: Final = "/"


async def _read_objects(page: PageRequest, bucket: RecordJson) -> Mapping[str, Any]:
    """Read the objects in the query's folder; ``found`` is None if the role may not list them."""
    crn, prefix = bucket["crn"], page.query.get("prefix", "")
    rights = await page.rights()
    found: dict[str, Any] | None = None
    if rights.may("storage:ListObjects", crn):
        found = await page.api.get(
            f"{api_of(page, BUCKET)}/objects",
            prefix=prefix,
            delimiter=_FOLDER,
            marker=page.marker,
            limit=50,
        )
    may_upload = rights.may("storage:PutObject", f"{crn}/*")
    return {
        "prefix": prefix,
        "address": f"?{urlencode({'prefix': prefix})}" if prefix else "?",
        "above": _above(page, prefix),
        "folders": [(each, _in_folder(page, each)) for each in found["common_prefixes"]]
        if found
        else [],
        "found": found,
        "headers": {"content-security-policy": UPLOADING} if may_upload else {},
    }


def _above(page: PageRequest, prefix: str) -> str:
    """Return the address of the folder above a prefix; an empty string at the top."""
    if not prefix:
        return ""
    return _in_folder(page, prefix[: prefix.rstrip(_FOLDER).rfind(_FOLDER) + 1])


def _in_folder(page: PageRequest, prefix: str) -> str:
    return (
        f"{path_of(page, BUCKET)}?{urlencode({'prefix': prefix})}"
        if prefix
        else path_of(page, BUCKET)
    )


_COLUMNS: Final = (
    Column("Objects", "object_count", "number"),
    Column("Size", "byte_count", "size"),
    CREATED,
)
BUCKET: Final = replace(
    noun_of(bucket.BUCKET, "A bucket keeps objects: files of any size under a key."),
    order="by name",
    key="name",
    columns=_COLUMNS,
    details=(
        *_COLUMNS[:2],
        Column("Uploads that are not completed", "upload_byte_count", "size"),
        Column("Sealed under the key", "kms_key.name"),
        CREATED,
    ),
    creates=(name_of(63), TAGS),
    updates=(TAGS,),
    methods=(deletion("bucket", "storage:DeleteBucket"),),
    commands=(("Store a file", "entrepot buckets put NAME KEY FILE"),),
    parts="noun_bucket.html",
    more=_read_objects,
    rights_on=lambda crn: (crn, f"{crn}/*"),
)
_ONE: Final = BUCKET.path_of_one


@post(f"{_ONE}/delete-object")
async def delete_bucket_object(page: InjectedPage) -> PageResponse:
    """Ask whether to delete an object; with ``confirmed`` in the form, delete it."""
    key = page.form.get("key", "")
    if "confirmed" not in page.form:
        await read_one(page, BUCKET)  # it must be there
        return page.show(
            "question.html",
            title=f"Delete {key}?",
            heading=Markup('Delete <span class="wraps">{}</span>?').format(key),
            words="The object cannot be had back.",
            button="Delete the object",
            back=path_of(page, BUCKET),
            fields={"key": key},
        )
    await page.api.change("DELETE", f"{api_of(page, BUCKET)}/objects/{key}")
    folder = key[: key.rfind(_FOLDER) + 1]
    return page.go(_in_folder(page, folder), "The object was deleted.")


@get(f"{_ONE}/download")
async def download_object(page: InjectedPage) -> PageResponse:
    """Send an object as a file."""
    key = page.query.get("key", "")
    name = key.rstrip(_FOLDER).rpartition(_FOLDER)[2] or "object"
    return RelayedObject(page, "GET", f"{api_of(page, BUCKET)}/objects/{key}", name)


@put(f"{_ONE}/upload")
async def upload_object(page: InjectedPage) -> PageResponse:
    """Store the body of the request as an object; a script of the page sends it."""
    return RelayedObject(page, "PUT", f"{api_of(page, BUCKET)}/objects/{page.query.get('key', '')}")
