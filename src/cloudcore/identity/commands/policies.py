"""``entrepot policies``: what service accounts and roles may do."""

from __future__ import annotations

from typing import Any, Final

from cloudcore.command_failures import Missing
from cloudcore.command_line import (
    Act,
    Cell,
    CommandLine,
    Deletion,
    Invocation,
    Noun,
    Option,
    Record,
)
from cloudcore.identity.commands.options import DESCRIPTION, FORCE, GRANTS, grants_of
from cloudcore.identity.commands.policy_attachments import ACTS
from cloudcore.identity.commands.simulation import SIMULATE

_STATEMENTS: Final = (
    Cell("SID", "sid"),
    Cell("EFFECT", "effect"),
    Cell("ACTIONS", "actions"),
    Cell("RESOURCES", "resources"),
    Cell("CONDITIONS", "conditions"),
)
_TEMPLATES: Final = (Cell("NAME", "name"), Cell("SUMMARY", "summary"))


def _show(run: Invocation, policy: Record) -> None:
    run.show_rows(policy["document"]["statements"], _STATEMENTS)


def _create(run: Invocation) -> bool:
    """Create a policy of a document, or of a template."""
    values, grants = run.values, grants_of(run.values)
    fields: dict[str, Any] = {
        name: values[name] for name in ("name", "description", "document") if name in values
    }
    if grants:
        fields["template"] = {"name": grants[0].template, "names": grants[0].names}
    made = run.client.create(run.path, fields)["policy"]
    advice = f"'entrepot policies attach {made['name']}' gives it to a service account or role"
    run.say(f"Created the policy {made['name']}; {advice}", made)
    return True


def _templates(run: Invocation) -> bool:
    """List the ready-made policies, or show the statements of one."""
    query = {"names": run.values.get("names")}
    rows = run.client.call("GET", "/v1/policy-templates", query=query)["policy_templates"]
    wanted = run.values.get("template")
    if wanted is None:
        run.show_rows(rows, _TEMPLATES)
        return True
    for row in rows:
        if row["name"] == wanted and run.is_for_program:
            run.show(row)
            return True
        if row["name"] == wanted:
            run.show_rows(row["document"]["statements"], _STATEMENTS[:-1])
            return True
    names = ", ".join(row["name"] for row in rows)
    raise Missing(f"there is no template {wanted!r}; there are {names}")


def _actions(run: Invocation) -> bool:
    """List the actions that policies can name."""
    prefix = run.values.get("prefix", "")
    rows = run.client.call("GET", "/v1/actions")["actions"]
    columns = (
        Cell("ACTION", "name", "whole"),
        Cell("SUMMARY", "summary"),
        Cell("RESOURCE", "resource", "whole"),
    )
    run.show_rows([row for row in rows if row["name"].startswith(prefix)], columns, "name")
    return True


_FILE: Final = Option(
    "document",
    "the document, or what 'policies show --output json' printed; - reads the standard input",
    "document",
    metavar="FILE",
    is_argument=True,
    is_optional=True,
)

POLICIES: Final = Noun(
    noun="policies",
    words="what service accounts and roles may do",
    path="/v1/policies",
    one="policy",
    many="policies",
    columns=(
        Cell("NAME", "name"),
        Cell("REVISION", "revision", "number"),
        Cell("DESCRIPTION", "description"),
        Cell("UPDATED", "updated_at", "time"),
    ),
    shown=_show,
    update=(_FILE, DESCRIPTION, FORCE),
    updated="{name} has revision {revision} now, wherever it is attached",
    delete=Deletion(
        words="delete a policy that is attached to nothing",
        question="Delete the policy {name}?",
        said="Deleted the policy {name}",
    ),
    acts=(
        Act(
            verb="create",
            words="create a policy, attached to nothing yet",
            is_of_all=True,
            options=(
                Option("name", "in lower case, such as web-push", metavar="NAME", is_argument=True),
                _FILE._replace(group="rights", is_required=True),
                DESCRIPTION,
                *(each._replace(group="rights") for each in GRANTS),
            ),
            run=_create,
        ),
        *ACTS,
        Act(
            verb="templates",
            words="list ready-made policies, or show one",
            path="/v1/policy-templates",
            options=(
                Option(
                    "template",
                    "show its statements",
                    metavar="TEMPLATE",
                    is_argument=True,
                    is_optional=True,
                ),
                Option(
                    "names",
                    "of the repositories, separated by commas, such as web/* (all)",
                    metavar="NAMES",
                ),
            ),
            run=_templates,
        ),
        Act(
            verb="actions",
            words="list the actions that policies can name",
            path="/v1/actions",
            options=(
                Option(
                    "prefix",
                    "such as registry: or iam:Get",
                    metavar="PREFIX",
                    is_argument=True,
                    is_optional=True,
                ),
            ),
            row_name="name",
            run=_actions,
        ),
        SIMULATE._replace(words="the same as 'entrepot may'"),
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``policies`` and its commands."""
    commands.add_described(POLICIES)
