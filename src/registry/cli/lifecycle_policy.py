"""A repository's lifecycle policy: its path, its file, and the error if there is none."""

from __future__ import annotations

import argparse
from typing import Any

from registry.cli.api import ApiClient
from registry.cli.documents import read_document
from registry.cli.failure import CommandFailure, Missing
from registry.cli.references import find_repository
from registry.cli.transport import RequestRefused


def policy_path(client: ApiClient, options: argparse.Namespace) -> str:
    """Return the path of the policy of the repository that the command line names."""
    repository = find_repository(client, options.repository)
    return f"/v1/repositories/{repository['id']}/lifecycle-policy"


def read_rules(name: str) -> dict[str, Any]:
    """Return the policy in a file; ``-`` is the standard input."""
    document = read_document(name)
    # The output of 'lifecycle show' has more fields, which the registry would reject.
    return {"rules": document["rules"]} if "revision" in document else document


def no_policy(error: RequestRefused, options: argparse.Namespace) -> CommandFailure:
    """Return the failure for a refused request: on 404, that there is no policy."""
    if error.status != 404:
        return error
    repository = options.repository
    return Missing(
        f"{repository} has no lifecycle policy, so nothing in it expires; "
        f"'entrepot lifecycle set {repository} FILE' gives it one"
    )
