"""``entrepot buckets``: buckets, and files put into them and got back."""

from __future__ import annotations

import sys
from mimetypes import guess_type
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final
from urllib.parse import quote

from cloudcore.command_line import Act, Cell, CommandLine, Deletion, Invocation, Noun, Option
from cloudcore.storage.rules import DEFAULT_CONTENT_TYPE

_STANDARD: Final = "-"
_COPIED_BYTES: Final = 1 << 20
_KEY: Final = Option("key", "of the object", metavar="KEY", is_argument=True)
_FIELDS: Final = (
    Option("kms_key", "key that seals what is stored: name, id or CRN", metavar="KEY"),
    Option("tags", "a tag of the bucket", "tags"),
)


def _put(run: Invocation) -> bool:
    """Send a file, or the standard input, as an object."""
    key, name = run.values["key"], run.values["file"]
    content_type = run.values.get("content_type") or guess_type(key)[0] or DEFAULT_CONTENT_TYPE
    path = _path_of(run, key)
    if name == _STANDARD:
        with TemporaryFile() as file:
            while part := sys.stdin.buffer.read(_COPIED_BYTES):
                file.write(part)
            answer = run.client.send_file(path, file, file.tell(), content_type)
    else:
        with Path(name).open("rb") as opened:
            size = Path(name).stat().st_size
            answer = run.client.send_file(path, opened, size, content_type)
    made = answer["object"]
    run.say(f"Stored {made['key']}, {made['size']} bytes", made)
    return True


def _get(run: Invocation) -> bool:
    """Write an object to a file, which appears when it is whole, or to the standard output."""
    key, name = run.values["key"], run.values["file"]
    path = _path_of(run, key)
    if name == _STANDARD:
        with TemporaryFile() as file:
            run.client.receive_file(path, file)
            file.seek(0)
            while part := file.read(_COPIED_BYTES):
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
        return True
    target = Path(name)
    unfinished = target.with_name(f"{target.name}.part")
    try:
        with unfinished.open("w+b") as file:
            size = run.client.receive_file(path, file)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    run.say(f"Wrote {name}, {size} bytes")
    return True


def _remove(run: Invocation) -> bool:
    """Delete objects."""
    for key in run.values["keys"]:
        run.client.call("DELETE", _path_of(run, key))
        run.say(f"Deleted {key}")
    return True


def _set_cors(run: Invocation) -> bool:
    """Replace the CORS rules by those of a file."""
    rules = run.client.call("PUT", f"{run.path}/cors", run.values["rules"])
    run.say("Set the CORS rules", rules)
    return True


def _path_of(run: Invocation, key: str) -> str:
    # Also its dots, which some proxies resolve.
    return f"{run.path}/objects/{quote(key, safe='').replace('.', '%2E')}"


BUCKETS: Final = Noun(
    noun="buckets",
    words="buckets of objects",
    path="/v1/buckets",
    one="bucket",
    many="buckets",
    name_filter="name",
    is_named_in_path=True,
    columns=(
        Cell("NAME", "name"),
        Cell("OBJECTS", "object_count", "number"),
        Cell("SIZE", "byte_count", "size"),
        Cell("CREATED", "created_at", "time"),
    ),
    create=(
        Option("name", "3 to 63 of a-z 0-9 - .; unique, fixed", metavar="NAME", is_argument=True),
        *_FIELDS,
    ),
    created="Created {name}; 'entrepot buckets put {name} KEY FILE' stores a file in it",
    update=(*_FIELDS, Option("kms_key", "seal under the platform key", "null", "no-kms-key")),
    delete=Deletion(words="delete an empty bucket", question="Delete the bucket {name}?"),
    acts=(
        Act(
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
            is_paged=True,
        ),
        Act(
            verb="put",
            words="store a file as an object, in the place of what is there",
            options=(
                _KEY,
                Option("file", "- reads the standard input", metavar="FILE", is_argument=True),
                Option("content_type", "of the object (guessed by the key)", metavar="TYPE"),
            ),
            run=_put,
        ),
        Act(
            verb="get",
            words="write an object to a file",
            options=(
                _KEY,
                Option("file", "- writes the standard output", metavar="FILE", is_argument=True),
            ),
            run=_get,
        ),
        Act(
            verb="remove",
            words="delete objects",
            options=(Option("keys", "of the objects", "texts", metavar="KEY", is_argument=True),),
            run=_remove,
        ),
        Act(
            verb="cors",
            words="show which web pages may read and write (CORS)",
            path="cors",
            method="GET",
        ),
        Act(
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
        Act(
            verb="reset-cors",
            words="let no web page read or write",
            path="cors",
            method="DELETE",
            said="Reset the CORS rules of {name}",
        ),
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``buckets`` and its commands."""
    commands.add_described(BUCKETS)
