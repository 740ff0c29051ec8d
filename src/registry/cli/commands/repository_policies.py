"""``entrepot repository-policies``: resource policies, by which others may use a repository."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Record, argument
from registry.cli.commands.repositories import REPOSITORIES

_STATEMENTS: Final = (Cell("SID", "sid"), "effect", "principals", "actions", "conditions")


def _show(run: Invocation, policy: Record) -> None:
    run.show_rows(policy["document"]["statements"], _STATEMENTS)


def _set(run: Invocation) -> None:
    query = {"force": run.values.get("force")}
    policy = run.client.call("PUT", run.path, run.values["document"], query)["policy"]
    run.say(f"{run.above.written} has revision {policy['revision']} of its policy", policy)


REPOSITORY_POLICIES: Final = Noun(
    noun="repository-policies",
    words="resource policies: who else may use a repository",
    path="policy",
    parent=REPOSITORIES,
    is_single=True,
    one="policy",
    singular="repository's policy",
    shown=_show,
    missing={
        "show": "{repository} has no policy: only its own account's policies count; "
        "'entrepot repository-policies set {repository} FILE' gives it one"
    },
    delete=Deletion(
        words="delete a repository's policy",
        question="Take the policy of {repository} away?",
        said="{repository} has no policy any more",
    ),
    commands=(
        Command(
            verb="set",
            words="give a repository a policy",
            options=(
                argument(
                    "document",
                    "the policy, or what 'repository-policies show --output json' printed; - reads "
                    "the standard input",
                    "document",
                    metavar="FILE",
                ),
                Option("force", "even if it locks you out", "flag"),
            ),
            run=_set,
        ),
    ),
)

COMMANDS: Final = (REPOSITORY_POLICIES,)
