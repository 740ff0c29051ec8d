"""What is wrong with the names of a filter by which ``entrepot audit`` has found nothing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from registry.cli.api import ApiClient, open_client
from registry.cli.failure import CommandFailure, Missing
from registry.cli.output import printable
from registry.cli.references import find_repository
from registry.cli.rights.lookup import POLICY, ROLE, SERVICE_ACCOUNT, USER, find
from registry.cli.rights.people import find_organization, open_person

_KINDS: Final = {
    "service-account": SERVICE_ACCOUNT,
    "role": ROLE,
    "policy": POLICY,
    "user": USER,
}


def unknown_names(options: argparse.Namespace) -> Iterator[str]:
    """Yield a sentence for each name of the filter that names nothing here.

    What the caller may not look up is passed over: it may be there.
    """
    checks = ((options.who, _check_principal), (options.resource, _check_resource))
    for written, check in checks:
        if written is None or written.endswith("*"):
            continue
        try:
            problem = check(options, written)
        except CommandFailure:
            continue
        if problem:
            yield problem


def _check_principal(options: argparse.Namespace, written: str) -> str:
    if options.organization is not None:
        return _check_member(options, written)
    client = open_client(options)
    if written.startswith("crn:"):
        return _check_crn(client, written)
    try:
        find(client, USER if "@" in written else SERVICE_ACCOUNT, written)
    except Missing as error:
        problem = str(error)
    else:
        return ""
    try:
        crn = find(client, ROLE, written)["crn"]
    except Missing:
        return problem
    return f"{printable(written)} is a role, which is named by its CRN here: --who {crn}"


def _check_member(options: argparse.Namespace, written: str) -> str:
    client = open_person(options)
    organization = find_organization(client, options)
    members = client.rows(f"/v1/organizations/{organization['id']}/members", "members")
    if "@" not in written or any(row["user"]["name"] == written.lower() for row in members):
        return ""
    return f"{organization['name']} has no member {printable(written)!r}"


def _check_resource(options: argparse.Namespace, written: str) -> str:
    client = open_client(options)
    if written.startswith("crn:"):
        return _check_crn(client, written)
    if options.organization is not None:
        return ""
    try:
        find_repository(client, written)
    except Missing as error:
        return f"--resource takes a CRN, or the name of a repository, and {error}"
    return ""


def _check_crn(client: ApiClient, crn: str) -> str:
    """Return a sentence if a CRN names nothing of the account, or the account by its handle.

    CRNs of kinds that cannot be looked up are not checked.
    """
    _, _, rest = crn.partition(":")
    service, _, _, resource = (*rest.split(":", 3), "", "", "")[:4]
    kind, _, name = resource.partition("/")
    try:
        if service == "iam" and kind in _KINDS:
            meant = find(client, _KINDS[kind], crn)["crn"]
            if meant != crn:
                return f"events name the account of {printable(crn)!r} by its id: {meant}"
        elif (service, kind) == ("registry", "repository") and name:
            find_repository(client, name)
    except Missing as error:
        return str(error)
    return ""
