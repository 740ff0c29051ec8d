"""``entrepot may`` and ``entrepot policies simulate``: may a principal do something, and why."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from cloudcore.command_failures import Missing, Misuse, RequestRefused
from cloudcore.command_line import Act, Cell, Invocation, Option, Record, argument

_PATH: Final = "/v1/policy-simulations"


def _deciding(result: Record) -> str:
    """Return the statements that decided, by policy and sid or place."""
    return ", ".join(
        f"{each['policy']['name'] if each['policy'] else 'the ' + each['source'] + ' policy'}"
        f"[{each['sid'] or each['index']}] {each['effect']}"
        for each in result["statements"]
    )


_COLUMNS: Final = (
    "action",
    Cell("DECISION", shown=lambda result: result["decision"].replace("_", " ")),
    "reason",
    Cell("STATEMENTS", shown=_deciding),
)


def _simulate(run: Invocation) -> bool:
    """Print the decision for each action; return False unless all are allowed."""
    given = run.values
    document = {
        **given,
        "principal": _principal(run, given["principal"]),
        "actions": [_action(each) for each in given["actions"].split(",")],
        "resource": run.crn_of(given["resource"]),
    }
    try:
        answer = run.client.call("POST", _PATH, document)["simulation"]
    except RequestRefused as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        raise Misuse(str(error)) from None  # a typing error must not look like a refusal
    if run.is_for_program:
        run.show(answer)
    else:
        run.show_rows(answer["results"], _COLUMNS)
    return all(each["decision"] == "allowed" for each in answer["results"])


def _action(written: str) -> str:
    return written if ":" in written or written == "*" else f"registry:{written}"


def _principal(run: Invocation, written: str) -> str:
    """Return the CRN of a service account or role; a bare name is a service account's first.

    Raises:
        Missing: there is neither.

    """
    from cloudcore.identity.commands.roles import ROLES  # noqa: PLC0415 - which imports policies
    from cloudcore.identity.commands.service_accounts import SERVICE_ACCOUNTS  # noqa: PLC0415

    kinds = {"service-account": SERVICE_ACCOUNTS, "role": ROLES}
    if written == "*" or written.startswith("crn:"):
        return written
    kind, slash, name = written.partition("/")
    if slash and kind in kinds:
        return str(run.find(kinds[kind], name)["crn"])
    for each in kinds.values():
        try:
            return str(run.find(each, written)["crn"])
        except Missing:
            continue
    raise Missing(
        f"there is neither a service account nor a role {written!r}; 'entrepot "
        "service-accounts list' and 'entrepot roles list' show those there are"
    )


SIMULATE: Final = Act(
    verb="simulate",
    words="may a principal do something to a resource, and why; exit 1 if it may not",
    path=_PATH,
    options=(
        argument(
            "principal",
            "a service account or role: ci, service-account/ci, role/admin, a CRN; '*' for anyone",
        ),
        argument(
            "actions",
            "whole ones, such as PushImage or iam:CreateRole; several with commas between",
            metavar="ACTION",
        ),
        argument("resource", "the name of a repository, or the CRN of anything"),
        Option("source_ip", "from which it would call", metavar="ADDRESS"),
        Option("time", "when, such as 2030-01-31T12:00:00Z (now)", metavar="TIME"),
        Option(
            "policies",
            "a document to try instead of the principal's policies; repeatable",
            "documents",
            "policy",
        ),
        Option(
            "resource_policy", "a document to try instead of the resource's own policy", "document"
        ),
        Option("resource_policy", "try it without one", "null", "no-resource-policy"),
    ),
    run=_simulate,
)

COMMANDS: Final = (SIMULATE._replace(verb="may"),)
