"""``entrepot keys``: the KMS keys of the account, and the blobs and images that they protect."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from cloudcore.command_failures import RequestRefused
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Command, Record
from cloudcore.commands.records import printable
from cloudcore.kms.commands import KEYS

_DEFAULT_DAYS: Final = 30
_MOST_NAMED: Final = 10


def _show_usage(run: Invocation) -> None:
    usage = _usage(run)
    run.say_lines(_usage_lines(run, usage), usage)


def _question(run: Invocation, key: Record) -> str:
    """Print what deleting a key would shred; return the question to confirm the deletion."""
    try:
        lines = _usage_lines(run, _usage(run))
    except RequestRefused as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        lines = ["What it protects is unknown: you may not read that (registry:DescribeKeyUsage)."]
    # For a program, on standard error: standard output has only the record.
    out = sys.stderr if run.is_for_program else sys.stdout
    out.writelines(f"{printable(line)}\n" for line in lines)
    out.flush()
    days = run.values.get("pending_window_days", _DEFAULT_DAYS)
    name = key["name"] or key["id"]
    return f"Delete the key {name} in {days} days, and shred what only it opens?"


def _usage(run: Invocation) -> Record:
    usage: Record = run.client.call("GET", f"/v1/key-usage/{run.record['id']}")["key_usage"]
    return usage


def _usage_lines(run: Invocation, usage: Record) -> list[str]:

    def sentence(words: str) -> str:
        return run.text(words.replace("~", "at least " if usage["is_partial"] else ""), usage)

    images = [f"{each['repository']['name']}@{each['digest']}" for each in usage["images"]]
    default = "It is the account's default: it seals what other repositories get."
    return [
        sentence(
            "Blobs under it: ~{blob_count}; only it opens ~{exclusive_blob_count} of them "
            "({exclusive_bytes})."
        ),
        sentence("Images that cannot be pulled without it: ~{image_count}."),
        *_some(images, usage["image_count"]),
        sentence("Repositories bound to it: ~{repository_count}."),
        *_some([each["name"] for each in usage["repositories"]], usage["repository_count"]),
        sentence("Objects in buckets under it alone: ~{object_count} ({object_bytes})."),
        sentence("Buckets bound to it: {bucket_count}."),
        *_some([each["name"] for each in usage["buckets"]], usage["bucket_count"]),
        *([default] if usage["is_account_default"] else []),
    ]


def _some(names: Sequence[str], count: int) -> list[str]:
    shown = [f"  {name}" for name in names[:_MOST_NAMED]]
    return [*shown, f"  and {count - len(shown)} more"] if count > len(shown) else shown


assert KEYS.delete is not None
_USAGE: Final = Command(
    verb="usage",
    words="show what a key protects: what its deletion would shred",
    run=_show_usage,
)
COMMANDS: Final = (
    replace(
        KEYS, delete=KEYS.delete._replace(question=_question), commands=(*KEYS.commands, _USAGE)
    ),
)
