"""``entrepot scrub``: its parsers."""

from __future__ import annotations

from registry.cli.options import Verbs, later
from registry.cli.paced_runs import add_limit_rate, add_status, whole_number
from registry.cli.server_options import add_data


def add_parsers(commands: Verbs) -> None:
    """Add ``scrub`` and ``scrub status``."""
    scrub = commands.add_parser(
        "scrub",
        help="read all stored bytes, and tell which are damaged (on the registry's machine)",
        description="Read the stored bytes of all blobs, manifests and objects of buckets, and"
        " compare them with their checksums; no key is needed. Damaged blobs are marked, so that"
        " the next push of the same bytes heals them; a damaged object must be stored again. Exit 1"
        " if anything is damaged. For operators of the registry: it needs the data and the settings"
        " of 'serve', and may run beside it.",
    )
    scrub.add_argument(
        "--repository",
        action="append",
        default=[],
        dest="repositories",
        metavar="ACCOUNT/NAME",
        help="read only the images of this repository; repeatable",
    )
    scrub.add_argument(
        "--older-than",
        type=whole_number,
        default=0,
        metavar="DAYS",
        help="skip blobs that were verified in these days; so an interrupted scrub goes on",
    )
    add_limit_rate(scrub)
    add_data(scrub)
    add_status(
        scrub, "how far the scrub in the background has come", later("run_scrub", "run_status")
    )
    scrub.set_defaults(run=later("run_scrub", "run_scrub"))
