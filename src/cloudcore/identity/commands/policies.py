"""``entrepot policies`` and ``entrepot may``: policies of the account, and simulated decisions."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from cloudcore.command_failures import Missing, Misuse, RequestRefused
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Record, argument
from cloudcore.identity.commands.options import DESCRIPTION, FORCE, GRANTS, grants_of

_PATH: Final = "/v1/policy-simulations"


def _deciding(result: Record) -> str:
    """Format the deciding statements, as policy name, sid or index, and effect."""
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
        "actions": [
            each if ":" in each or each == "*" else f"registry:{each}"
            for each in given["actions"].split(",")
        ],
        "resource": run.crn_of(given["resource"]),
    }
    try:
        answer = run.client.call("POST", _PATH, document)["simulation"]
    except RequestRefused as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        raise Misuse(str(error)) from None  # a typing error must not look like a refusal
    run.show_rows(answer["results"], _COLUMNS, document=answer)
    return all(each["decision"] == "allowed" for each in answer["results"])


def _principal(run: Invocation, written: str) -> str:
    """Return the CRN of a service account or role; for a bare name, try service accounts first.

    Raise `Missing` if there is neither.
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


SIMULATE: Final = Command(
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


_STATEMENTS: Final = (Cell("SID", "sid"), "effect", "actions", "resources", "conditions")


def _show(run: Invocation, policy: Record) -> None:
    run.show_rows(policy["document"]["statements"], _STATEMENTS)


def _create(run: Invocation) -> None:
    values, grants = run.values, grants_of(run.values)
    fields: dict[str, Any] = {
        name: values[name] for name in ("name", "description", "document") if name in values
    }
    if grants:
        fields["template"] = {"name": grants[0].template, "names": grants[0].names}
    made = run.client.create(run.path, fields)["policy"]
    advice = f"'entrepot policies attach {made['name']}' gives it to a service account or role"
    run.say(f"Created the policy {made['name']}; {advice}", made)


_WORDS: Final = "by name, id or CRN"
_TARGET: Final = (
    Option("service_account", _WORDS, metavar="SERVICE-ACCOUNT", group="target", is_required=True),
    Option("role", _WORDS, metavar="ROLE", group="target"),
)


def _target(row: Record) -> Record:
    """Return the reference to the service account or role to which a policy is attached."""
    target: Record = row["service_account"] or row["role"]
    return target


def _attach(run: Invocation) -> None:
    policy, query = run.record["name"], {"force": run.values.get("force")}
    document = {
        name: run.values[name] for name in ("role", "service_account") if name in run.values
    }
    made = run.client.create(f"{run.path}/attachments", document, query)["attachment"]
    run.say(f"{_target(made)['name']} has the policy {policy}", made)


def _detach(run: Invocation) -> None:
    from cloudcore.identity.commands.roles import ROLES  # noqa: PLC0415 - which imports policies
    from cloudcore.identity.commands.service_accounts import SERVICE_ACCOUNTS  # noqa: PLC0415

    noun = ROLES if "role" in run.values else SERVICE_ACCOUNTS
    target = run.find(noun, run.values[noun.one])
    path = f"{run.path}/attachments"
    for row in run.client.rows(path, "attachments"):
        if _target(row)["id"] == target["id"]:
            name = row["policy"]["name"]
            run.confirm(f"Take the policy {name} from {target['name']}, and its rights?")
            query = {"force": run.values.get("force")}
            run.client.call("DELETE", f"{path}/{row['id']}", query=query)
            run.say(f"{target['name']} has the policy {name} no more")
            return
    raise Missing(
        f"{target['name']} does not have this policy; "
        f"'entrepot policies attachments {run.written}' shows what has it"
    )


def _list(run: Invocation) -> None:
    columns = (
        Cell("ATTACHED TO", shown=lambda row: _target(row)["name"]),
        Cell("KIND", shown=lambda row: "role" if row["role"] else "service account"),
        Cell("SINCE", "created_at", "time"),
    )
    run.show_rows(run.client.rows(f"{run.path}/attachments", "attachments"), columns)


def _templates(run: Invocation) -> None:
    """List the ready-made policies, or show the statements of one."""
    query = {"names": run.values.get("names")}
    rows = run.client.call("GET", "/v1/policy-templates", query=query)["policy_templates"]
    wanted = run.values.get("template")
    if wanted is None:
        run.show_rows(rows, ("name", "summary"))
        return
    for row in rows:
        if row["name"] == wanted:
            run.show_rows(row["document"]["statements"], _STATEMENTS[:-1], document=row)
            return
    names = ", ".join(row["name"] for row in rows)
    raise Missing(f"there is no template {wanted!r}; there are {names}")


def _actions(run: Invocation) -> None:
    prefix = run.values.get("prefix", "")
    rows = run.client.call("GET", "/v1/actions")["actions"]
    columns = (Cell("ACTION", "name", "whole"), "summary", Cell("RESOURCE", "resource", "whole"))
    run.show_rows([row for row in rows if row["name"].startswith(prefix)], columns, "name")


_FILE: Final = argument(
    "document",
    "the document, or what 'policies show --output json' printed; - reads the standard input",
    "document",
    metavar="FILE",
    is_optional=True,
)

POLICIES: Final = Noun(
    noun="policies",
    words="what service accounts and roles may do",
    one="policy",
    name_filter="name",
    columns=("name", Cell("REVISION", "revision", "number"), "description", "updated_at"),
    shown=_show,
    update=(_FILE, DESCRIPTION, FORCE),
    updated="{name} has revision {revision} now, wherever it is attached",
    delete=Deletion(
        words="delete a policy that is attached to nothing",
        question="Delete the policy {name}?",
        said="Deleted the policy {name}",
    ),
    commands=(
        Command(
            verb="create",
            words="create a policy, attached to nothing yet",
            is_on_list=True,
            options=(
                argument("name", "in lower case, such as web-push"),
                _FILE._replace(group="rights", is_required=True),
                DESCRIPTION,
                *(each._replace(group="rights") for each in GRANTS),
            ),
            run=_create,
        ),
        Command(
            verb="attach",
            words="give a service account or role a policy",
            options=(*_TARGET, FORCE),
            run=_attach,
        ),
        Command(
            verb="detach",
            words="take a policy from a service account or role",
            options=(*_TARGET, FORCE),
            asks=True,
            run=_detach,
        ),
        Command(verb="attachments", words="list what a policy is attached to", run=_list),
        Command(
            verb="templates",
            words="list ready-made policies, or show one",
            path="/v1/policy-templates",
            options=(
                argument("template", "show its statements", is_optional=True),
                Option(
                    "names",
                    "of the repositories, separated by commas, such as web/* (all)",
                    metavar="NAMES",
                ),
            ),
            run=_templates,
        ),
        Command(
            verb="actions",
            words="list the actions that policies can name",
            path="/v1/actions",
            options=(argument("prefix", "such as registry: or iam:Get", is_optional=True),),
            row_name="name",
            run=_actions,
        ),
        SIMULATE._replace(words="the same as 'entrepot may'"),
    ),
)

COMMANDS: Final = (POLICIES, SIMULATE._replace(verb="may"))
