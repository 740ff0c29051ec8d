"""What a key protects, in words and as a command."""

from __future__ import annotations

import argparse

from registry.cli.api import ApiClient, Record, open_client
from registry.cli.options import Verbs, add_verb
from registry.cli.output import TABLE, echo, size_text, write_record
from registry.cli.rights.lookup import KEY, add_named, find
from registry.cli.transport import RequestRefused

_MOST_NAMED = 10
_HTTP_FORBIDDEN = 403


def add_parsers(verbs: Verbs) -> None:
    """Add ``usage`` to the commands of keys."""
    words = "show what a key protects: what its deletion would shred"
    add_named(add_verb(verbs, "usage", _show, words), KEY)


def _show(options: argparse.Namespace) -> int:
    client = open_client(options)
    usage = fetch_usage(client, find(client, KEY, options.key))
    if options.output != TABLE:
        write_record(usage, options.output)
        return 0
    for line in usage_lines(usage):
        echo(line, options.output)
    return 0


def fetch_usage(client: ApiClient, key: Record) -> Record:
    """Return what a key protects."""
    found: Record = client.call("GET", f"/v1/key-usage/{key['id']}")["key_usage"]
    return found


def loss_lines(client: ApiClient, key: Record) -> list[str]:
    """Return what the deletion of a key would shred, or that the caller may not read it."""
    try:
        return usage_lines(fetch_usage(client, key))
    except RequestRefused as error:
        if error.status != _HTTP_FORBIDDEN:
            raise
        return ["What it protects is unknown: you may not read that (registry:DescribeKeyUsage)."]


def usage_lines(usage: Record) -> list[str]:
    """Return what a key protects, in sentences for a person."""
    least = "at least " if usage["is_partial"] else ""
    blobs, alone = usage["blob_count"], usage["exclusive_blob_count"]
    size = size_text(usage["exclusive_bytes"])
    lines = [
        f"Blobs under it: {least}{blobs}; only it opens {least}{alone} of them ({size}).",
        f"Images that cannot be pulled without it: {least}{usage['image_count']}.",
    ]
    images = [f"{each['repository']['name']}@{each['digest']}" for each in usage["images"]]
    lines += _some(images, usage["image_count"])
    lines.append(f"Repositories bound to it: {least}{usage['repository_count']}.")
    lines += _some([each["name"] for each in usage["repositories"]], usage["repository_count"])
    size = size_text(usage["object_bytes"])
    lines.append(f"Objects in buckets under it alone: {least}{usage['object_count']} ({size}).")
    lines.append(f"Buckets bound to it: {usage['bucket_count']}.")
    lines += _some([each["name"] for each in usage["buckets"]], usage["bucket_count"])
    if usage["is_account_default"]:
        lines.append("It is the account's default: it seals what other repositories get.")
    return lines


def _some(names: list[str], count: int) -> list[str]:
    shown = [f"  {name}" for name in names[:_MOST_NAMED]]
    return [*shown, f"  and {count - len(shown)} more"] if count > len(shown) else shown
