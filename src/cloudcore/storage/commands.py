"""``entrepot buckets``: manage buckets, and upload and download files."""

from __future__ import annotations

import os
import sys
from mimetypes import guess_type
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final
from urllib.parse import quote
from uuid import uuid4

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, argument
from cloudcore.errors import InvalidInput
from cloudcore.storage.bucket import DEFAULT_CONTENT_TYPE, key_bytes

_STANDARD: Final = "-"
_COPIED_BYTES: Final = 1 << 20
_KEY: Final = argument("key", "of the object", metavar="KEY")
_FIELDS: Final = (
    Option("kms_key", "key that seals what is stored: name, id or CRN", metavar="KEY"),
    Option("tags", "a tag of the bucket", "tags"),
)


def _put(run: Invocation) -> None:
    key, name = run.values["key"], run.values["file"]
    content_type = run.values.get("content_type") or guess_type(key)[0] or DEFAULT_CONTENT_TYPE
    if not (content_type.isascii() and content_type.isprintable()):
        raise InvalidInput(f"a content type is like text/plain, not {content_type!r}")
    path = _path_of(run, key)
    if name == _STANDARD:
        answer = _send_copy(run, path, sys.stdin.buffer, content_type)
    else:
        with Path(name).open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            if size:
                answer = run.client.send_file(path, opened, size, content_type)
            else:  # It is empty, or does not tell its size: a pipe, or a file of /proc.
                answer = _send_copy(run, path, opened, content_type)
    made = answer["object"]
    run.say(f"Stored {made['key']}, {made['size']} bytes", made)


def _send_copy(run: Invocation, path: str, source: BinaryIO, content_type: str) -> dict[str, Any]:
    """Send a source that can be read only once: copy it to a temporary file first."""
    with TemporaryFile() as file:
        copyfileobj(source, file, _COPIED_BYTES)
        return run.client.send_file(path, file, file.tell(), content_type)


def _get(run: Invocation) -> None:
    """Write an object to standard output or a file; a regular file appears only when complete."""
    key, name = run.values["key"], run.values["file"]
    path = _path_of(run, key)
    if name == _STANDARD:
        _receive_copy(run, path, sys.stdout.buffer)
        return
    target = Path(name)
    if not target.name or target.is_dir():
        raise InvalidInput(f"{name!r} is a folder; name a file in it")
    if target.exists() and not target.is_file():  # A device or a pipe, which stays what it is.
        with target.open("wb") as opened:
            size = _receive_copy(run, path, opened)
    else:
        size = _receive_file(run, path, target.resolve())
    run.say(f"Wrote {name}, {size} bytes")


def _receive_file(run: Invocation, path: str, target: Path) -> int:
    """Write an object to a file beside the target, then rename it; return its size."""
    unfinished = target.with_name(f".{uuid4().hex}.part")
    try:
        with unfinished.open("x+b") as file:
            size = run.client.receive_file(path, file)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return size


def _receive_copy(run: Invocation, path: str, target: BinaryIO) -> int:
    """Write an object to a target that cannot be rewound, such as a pipe; return its size."""
    with TemporaryFile() as file:
        size = run.client.receive_file(path, file)
        file.seek(0)
        copyfileobj(file, target, _COPIED_BYTES)
        target.flush()
    return size


def _remove(run: Invocation) -> bool:
    """Delete objects; return False if one of the deletions was refused."""

    def remove(key: str) -> None:
        run.client.call("DELETE", _path_of(run, key))
        run.say(f"Deleted {key}")

    return run.for_each(run.values["keys"], remove)


def _set_cors(run: Invocation) -> None:
    rules = run.client.call("PUT", f"{run.path}/cors", run.values["rules"])
    run.say("Set the CORS rules", rules)


def _path_of(run: Invocation, key: str) -> str:
    # Dots are percent-encoded too: some proxies resolve the segments "." and "..".
    return f"{run.path}/objects/{quote(key_bytes(key), safe='').replace('.', '%2E')}"


BUCKETS: Final = Noun(
    noun="buckets",
    words="buckets of objects",
    name_filter="name",
    is_named_in_path=True,
    columns=("name", "object_count", Cell("SIZE", "byte_count", "size"), "created_at"),
    create=(
        argument("name", "3 to 63 of a-z 0-9 - .; unique, fixed", metavar="NAME"),
        *_FIELDS,
    ),
    created="Created {name}; 'entrepot buckets put {name} KEY FILE' stores a file in it",
    update=(*_FIELDS, Option("kms_key", "seal under the platform key", "null", "no-kms-key")),
    delete=Deletion(words="delete an empty bucket", question="Delete the bucket {name}?"),
    commands=(
        Command(
            verb="objects",
            words="list objects by key",
            path="objects",
            method="GET",
            options=(Option("prefix", "only keys that begin so"),),
            answer="objects",
            columns=(
                Cell("KEY", "key", "whole"),
                Cell("SIZE", "size", "size"),
                Cell("MODIFIED", "last_modified", "time"),
                Cell("ETAG", "etag", "whole"),
            ),
            row_name="key",
        ),
        Command(
            verb="put",
            words="store a file as an object, in the place of what is there",
            options=(
                _KEY,
                argument("file", "- reads the standard input", metavar="FILE"),
                Option("content_type", "of the object (guessed by the key)", metavar="TYPE"),
            ),
            run=_put,
        ),
        Command(
            verb="get",
            words="write an object to a file",
            options=(
                _KEY,
                argument("file", "- writes the standard output", metavar="FILE"),
            ),
            run=_get,
        ),
        Command(
            verb="remove",
            words="delete objects",
            question="Delete these objects of the bucket {name}? Nothing brings them back.",
            options=(argument("keys", "of the objects", "texts", metavar="KEY"),),
            run=_remove,
        ),
        Command(
            verb="cors",
            words="show which web pages may read and write (CORS)",
            path="cors",
            method="GET",
        ),
        Command(
            verb="set-cors",
            words="let web pages read and write",
            options=(
                Option(
                    "rules",
                    'file with {"cors_rules": […]}; - reads the standard input',
                    "document",
                    metavar="FILE",
                    is_required=True,
                    name="rules",
                ),
            ),
            run=_set_cors,
        ),
        Command(
            verb="reset-cors",
            words="let no web page read or write",
            path="cors",
            method="DELETE",
            said="Reset the CORS rules of {name}",
        ),
    ),
)
COMMANDS: Final = (BUCKETS,)
