"""Ready-made identity policies: templates that families declare, filled with names of resources.

A name may end in ``*``, which matches all names with that prefix. The policy made from a template
is an ordinary policy that can be changed; a later version of the template does not affect it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cloudcore.errors import InvalidInput
from cloudcore.iam.grammar import StringForm, nearest, refusal

MAX_NAMES: Final = 20
"""Maximum names in one policy, so that several policies fit within a principal's limits."""

_NAME: Final = "<name>"


class TemplateStatement(NamedTuple):
    """A statement that allows actions on the named resources, or on a fixed one."""

    sid: str
    actions: tuple[str, ...]
    resource: str
    """A CRN with the placeholders ``<region>`` and ``<account>``, and ``<name>`` unless fixed."""


class PolicyTemplate(NamedTuple):
    """A ready-made policy of a family."""

    name: str
    family: str
    summary: str
    names: StringForm
    """Form of the names that can be filled in."""
    statements: tuple[TemplateStatement, ...]

    def document(self, names: Sequence[str], region: str, account_id: str) -> dict[str, Any]:
        """Return the policy document for the resources with these names in an account.

        Raise `InvalidInput` if there are no names or too many, or one is malformed.
        """
        if not 1 <= len(names) <= MAX_NAMES:
            raise refusal("names", "out_of_range", f"a list of 1 to {MAX_NAMES} names")
        for name in names:
            if not self.names.grammar.fullmatch(name):
                raise refusal("names", "malformed", self.names.words, value=name)
        statements = [
            {
                "sid": each.sid,
                "effect": "allow",
                "actions": list(each.actions),
                "resources": _resources(each.resource, names, region, account_id),
            }
            for each in self.statements
        ]
        return {"version": "1", "statements": statements}


def find_template(templates: Sequence[PolicyTemplate], name: str) -> PolicyTemplate:
    """Return the template with this name.

    Raise `InvalidInput` if there is none; ``suggestions`` has the most similar names.
    """
    found = next((each for each in templates if each.name == name), None)
    if found is None:
        known = [each.name for each in templates]
        raise InvalidInput(
            f"template: there is no template {name[:64]}; there are {', '.join(known)}",
            field="template",
            reason="unknown_template",
            value=name,
            suggestions=nearest(name, known),
        )
    return found


def _resources(form: str, names: Sequence[str], region: str, account_id: str) -> list[str]:
    placed = form.replace("<region>", region).replace("<account>", account_id)
    if _NAME not in placed:
        return [placed]
    return [placed.replace(_NAME, name) for name in dict.fromkeys(names)]
