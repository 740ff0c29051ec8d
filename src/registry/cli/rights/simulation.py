"""``entrepot may`` and ``entrepot policies simulate``: may a principal do something, and why."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from registry.cli.api import ApiClient, open_client
from registry.cli.documents import read_document
from registry.cli.failure import FAILED, Missing, Misuse
from registry.cli.options import Verbs, add_verb
from registry.cli.output import TABLE, Column, column, printable, write_record, write_records
from registry.cli.references import find_repository
from registry.cli.rights.lookup import ROLE, SERVICE_ACCOUNT, find
from registry.cli.transport import RequestRefused

_PATH: Final = "/v1/policy-simulations"
_KINDS: Final = {"service-account": SERVICE_ACCOUNT, "role": ROLE}
_NO_POLICY: Final = "none"


def _deciding(result: Mapping[str, Any]) -> str:
    """Return the statements that decided, by policy and sid or place."""
    return ", ".join(
        f"{each['policy']['name'] if each['policy'] else 'the ' + each['source'] + ' policy'}"
        f"[{each['sid'] or each['index']}] {each['effect']}"
        for each in result["statements"]
    )


_COLUMNS: Final = (
    column("ACTION", "action"),
    column("DECISION", "decision", lambda text: str(text).replace("_", " ")),
    column("REASON", "reason"),
    Column("STATEMENTS", _deciding),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``may``."""
    words = "may a principal do something to a resource, and why; exit 1 if it may not"
    add_arguments(add_verb(commands, "may", simulate, words))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `simulate`."""
    parser.add_argument(
        "principal",
        metavar="PRINCIPAL",
        help="a service account or role: ci, service-account/ci, role/admin, a CRN; '*' for anyone",
    )
    parser.add_argument(
        "actions",
        metavar="ACTION",
        help="whole ones, such as PushImage or iam:CreateRole; several with commas between",
    )
    parser.add_argument(
        "resource", metavar="RESOURCE", help="the name of a repository, or the CRN of anything"
    )
    parser.add_argument("--source-ip", metavar="ADDRESS", help="from which it would call")
    parser.add_argument("--time", metavar="TIME", help="when, such as 2030-01-31T12:00:00Z (now)")
    parser.add_argument(
        "--policy",
        action="append",
        dest="policies",
        metavar="FILE",
        help="a document to try instead of the principal's policies; repeatable",
    )
    parser.add_argument(
        "--resource-policy",
        metavar="FILE",
        help=f"a document to try instead of the resource's own policy; {_NO_POLICY}: without one",
    )


def simulate(options: argparse.Namespace) -> int:
    """Print the decision for each action; return 1 unless all are allowed."""
    document: dict[str, Any] = {
        "source_ip": options.source_ip,
        "time": options.time,
        "policies": options.policies and [read_document(each) for each in options.policies],
    }
    document = {name: value for name, value in document.items() if value is not None}
    if options.resource_policy is not None:
        is_none = options.resource_policy == _NO_POLICY
        document["resource_policy"] = None if is_none else read_document(options.resource_policy)
    client = open_client(options)
    document["principal"] = _principal(client, options.principal)
    document["actions"] = [_action(each) for each in options.actions.split(",")]
    document["resource"] = _resource(client, options.resource)
    try:
        answer = client.call("POST", _PATH, document)["simulation"]
    except RequestRefused as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        raise Misuse(str(error)) from None  # a typing error must not look like a refusal
    if options.output != TABLE:
        write_record(answer, options.output)
    else:
        write_records(answer["results"], _COLUMNS, options.output)
    allowed = all(each["decision"] == "allowed" for each in answer["results"])
    return 0 if allowed else FAILED


def _action(written: str) -> str:
    return written if ":" in written or written == "*" else f"registry:{written}"


def _principal(client: ApiClient, written: str) -> str:
    """Return the CRN of a service account or role; a bare name is a service account's first.

    Raises:
        Missing: there is neither.

    """
    if written == "*" or written.startswith("crn:"):
        return written
    kind, slash, name = written.partition("/")
    if slash and kind in _KINDS:
        return str(find(client, _KINDS[kind], name)["crn"])
    for each in _KINDS.values():
        try:
            return str(find(client, each, written)["crn"])
        except Missing:
            continue
    raise Missing(
        f"there is neither a service account nor a role {printable(written)!r}; 'entrepot "
        "service-accounts list' and 'entrepot roles list' show those there are"
    )


def _resource(client: ApiClient, written: str) -> str:
    """Return the CRN of a repository by its name; a CRN as it is.

    The CRN of a name that is not taken yet is that in a ready-made policy on this name.
    """
    if written.startswith("crn:"):
        return written
    try:
        return str(find_repository(client, written)["crn"])
    except Missing:
        answer = client.call("GET", "/v1/policy-templates", query={"names": written})
    return str(answer["policy_templates"][0]["document"]["statements"][0]["resources"][0])
