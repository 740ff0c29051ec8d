"""``entrepot repository-policies``: who else may use a repository."""

from __future__ import annotations

from typing import Final

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
from registry.cli.repositories import REPOSITORIES

_STATEMENTS: Final = (
    Cell("SID", "sid"),
    Cell("EFFECT", "effect"),
    Cell("PRINCIPALS", "principals"),
    Cell("ACTIONS", "actions"),
    Cell("CONDITIONS", "conditions"),
)


def _show(run: Invocation, policy: Record) -> None:
    run.show_rows(policy["document"]["statements"], _STATEMENTS)


def _set(run: Invocation) -> bool:
    query = {"force": run.values.get("force")}
    policy = run.client.call("PUT", run.path, run.values["document"], query)["policy"]
    run.say(f"{run.above.written} has revision {policy['revision']} of its policy", policy)
    return True


REPOSITORY_POLICIES: Final = Noun(
    noun="repository-policies",
    words="resource policies: who else may use a repository",
    path="policy",
    parent=REPOSITORIES,
    is_single=True,
    one="policy",
    many="policies",
    singular="repository's policy",
    columns=(),
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
    acts=(
        Act(
            verb="set",
            words="give a repository a policy",
            options=(
                Option(
                    "document",
                    "the policy, or what 'repository-policies show --output json' printed; - reads "
                    "the standard input",
                    "document",
                    metavar="FILE",
                    is_argument=True,
                ),
                Option("force", "even if it locks you out", "flag"),
            ),
            run=_set,
        ),
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``repository-policies`` and its commands."""
    commands.add_described(REPOSITORY_POLICIES)
