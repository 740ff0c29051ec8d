"""``entrepot seal``: its parsers."""

from __future__ import annotations

from registry.cli.options import Verbs, later
from registry.cli.paced_runs import add_limit_rate, add_status
from registry.cli.server_options import add_data


def add_parsers(commands: Verbs) -> None:
    """Add ``seal`` and ``seal status``."""
    seal = commands.add_parser(
        "seal",
        help="encrypt the blobs that are stored plain (on the registry's machine)",
        description="Encrypt all blobs that are stored plain, each under the key of every"
        " repository that has it. Pushes and pulls go on, and an interrupted run continues where it"
        " stopped. Damaged blobs are marked, so that the next push of the same bytes heals them."
        " Exit 1 if any is damaged, or must stay plain since a key that it needs is disabled or"
        " deleted. For operators of the registry: it needs the data, the settings and the root key"
        " of 'serve', and may run beside it. The plain files are deleted by the garbage collector.",
    )
    add_limit_rate(seal)
    add_data(seal)
    add_status(
        seal,
        "how much is stored plain, and how the last turn in the background ended",
        later("run_seal", "run_status"),
    )
    seal.set_defaults(run=later("run_seal", "run_seal"))
