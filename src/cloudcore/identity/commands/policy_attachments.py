"""``entrepot policies attach``, ``detach`` and ``attachments``."""

from __future__ import annotations

from typing import Final

from cloudcore.command_failures import Missing
from cloudcore.command_line import Act, Cell, Invocation, Option, Record
from cloudcore.identity.commands.options import FORCE

_WORDS: Final = "by name, id or CRN"
_TARGET: Final = (
    Option("service_account", _WORDS, metavar="SERVICE-ACCOUNT", group="target", is_required=True),
    Option("role", _WORDS, metavar="ROLE", group="target"),
)


def _target(row: Record) -> Record:
    """Return the reference to the service account or role of an attachment."""
    target: Record = row["service_account"] or row["role"]
    return target


def _attach(run: Invocation) -> bool:
    """Give a service account or role a policy."""
    policy, query = run.record["name"], {"force": run.values.get("force")}
    document = {
        name: run.values[name] for name in ("role", "service_account") if name in run.values
    }
    made = run.client.create(f"{run.path}/attachments", document, query)["attachment"]
    run.say(f"{_target(made)['name']} has the policy {policy}", made)
    return True


def _detach(run: Invocation) -> bool:
    """Take a policy from a service account or role."""
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
            return True
    raise Missing(
        f"{target['name']} does not have this policy; "
        f"'entrepot policies attachments {run.written}' shows what has it"
    )


def _list(run: Invocation) -> bool:
    """List what a policy is attached to."""
    columns = (
        Cell("ATTACHED TO", shown=lambda row: _target(row)["name"]),
        Cell("KIND", shown=lambda row: "role" if row["role"] else "service account"),
        Cell("SINCE", "created_at", "time"),
    )
    run.show_rows(run.client.rows(f"{run.path}/attachments", "attachments"), columns)
    return True


ACTS: Final = (
    Act(
        verb="attach",
        words="give a service account or role a policy",
        options=(*_TARGET, FORCE),
        run=_attach,
    ),
    Act(
        verb="detach",
        words="take a policy from a service account or role",
        options=(*_TARGET, FORCE),
        asks=True,
        run=_detach,
    ),
    Act(verb="attachments", words="list what a policy is attached to", run=_list),
)
