"""Paths of pages that other pages link to, and templates of the routes below them."""

from __future__ import annotations

from typing import Final

CONSOLE: Final = "/console"
HOME: Final = "/console/repositories"
SIGN_IN: Final = "/console/sign-in"
SIGNED_IN: Final = "/console/signed-in"
SIGNED_OUT: Final = "/console/signed-out"
ROLES: Final = "/console/roles"
SETTINGS: Final = "/console/settings"
KEYS: Final = f"{SETTINGS}/keys"
SERVICE_ACCOUNTS: Final = "/console/service-accounts"
POLICIES: Final = "/console/policies"
ACCOUNT_ROLES: Final = "/console/account-roles"
PEOPLE: Final = "/console/people"
MY_ACCOUNT: Final = "/console/my-account"
CONTAINER_PASSWORDS: Final = f"{MY_ACCOUNT}/container-passwords"
ACCOUNTS: Final = "/console/accounts"
SIMULATOR: Final = "/console/simulator"
AUDIT: Final = "/console/audit"

REPOSITORY: Final = f"{HOME}/{{repository:str}}"
IMAGE: Final = f"{REPOSITORY}/images/{{digest:str}}"

OWN_WORDS: Final = frozenset(
    {
        "account-roles",
        "accounts",
        "audit",
        "client",
        "my-account",
        "overview",
        "people",
        "policies",
        "repositories",
        "roles",
        "search",
        "service-accounts",
        "services",
        "settings",
        "sign-in",
        "sign-out",
        "simulator",
        "signed-in",
        "signed-out",
        "static",
        "storage",
    }
)
"""Words with which the paths of routes begin, after ``/console/``."""
