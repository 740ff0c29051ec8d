"""Names and addresses of a kind of resource in the console."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cloudcore.resources.resource import camel

Section = Literal["services", "settings", "access"]
"""The entry of the console's menu."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NounNames:
    """The names of a kind of resource, the paths of its pages, and the actions they need."""

    service: str
    """Its family."""
    one: str
    """As ``/v1`` calls one: ``queue``."""
    many: str
    noun: str = ""
    """What one is called in sentences."""
    plural: str = ""
    title: str = ""
    """Of the list; by default `plural`."""
    section: Section = "services"
    path: str = ""
    """Of the list."""
    api: str = ""
    intro: str = ""
    """A sentence that says what one is."""
    order: str = "the oldest first"
    """The order of the list of ``/v1``."""
    label: str = "name"
    """The field that persons know one by."""
    unnamed: str = ""
    """What one is called that has no name any more."""
    key: str = "id"
    """The field that paths have."""
    list_action: str = ""
    create_action: str = ""
    update_action: str = ""
    created: str = ""
    """Notices."""
    updated: str = ""

    def __post_init__(self) -> None:
        """Complete what is not said otherwise, by the names of the noun."""
        noun = self.noun or self.one.replace("_", " ")
        usual = {
            "noun": noun,
            "plural": self.many.replace("_", " "),
            "path": f"/console/services/{self.many.replace('_', '-')}",
            "api": f"/v1/{self.many.replace('_', '-')}",
            "list_action": f"{self.service}:List{camel(self.many)}",
            "create_action": f"{self.service}:Create{camel(self.one)}",
            "update_action": f"{self.service}:Update{camel(self.one)}",
            "created": f"The {noun} was created.",
            "updated": f"The {noun} was changed.",
        }
        for name, words in usual.items():
            if not getattr(self, name):
                object.__setattr__(self, name, words)

    @property
    def type(self) -> str:
        """Return the type in CRNs."""
        return self.one.replace("_", "-")

    @property
    def heading(self) -> str:
        """Return the title of the list."""
        return self.title or self.plural[:1].upper() + self.plural[1:]

    @property
    def path_of_one(self) -> str:
        """Return the route template of one."""
        return f"{self.path}/{{{self.one}:str}}"
