"""Print new secrets once, in a form that pipes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from cloudcore.command_line import Record
from registry.cli.output import TABLE, printable, write_record


def show_secret(
    options: argparse.Namespace,
    words: str,
    record: Record,
    labels: Mapping[str, str],
    document: Record | None = None,
) -> None:
    """Print a record with a new secret; its last label names the field of the secret.

    As a table: the words, and a line for each label. With ``--quiet`` the standard output has the
    secret and nothing else, so that it can be piped. In other forms: the document, or the record.
    """
    if options.output != TABLE:
        write_record(record if document is None else document, options.output)
        return
    *_, secret = labels.values()
    if options.quiet:
        sys.stderr.write(f"{printable(words)}\n")
        sys.stdout.write(f"{record[secret]}\n")
        return
    width = max(map(len, labels))
    lines = [f"  {label:<{width}}  {printable(record[field])}" for label, field in labels.items()]
    shown_once = "Keep it now: it is shown this once."
    sys.stdout.writelines(f"{line}\n" for line in (printable(words), "", *lines, "", shown_once))
