"""CRNs on the command line, which may name the caller's account by its id or by its handle."""

from __future__ import annotations

from cloudcore.crn import Crn
from cloudcore.uuids import parse_uuid
from registry.cli.api import ApiClient
from registry.cli.failure import Misuse
from registry.cli.transport import RequestRefused


def own_crn(client: ApiClient, crn: Crn) -> Crn | None:
    """Return a CRN as answers have it, with the account's id; None if it is of another account.

    Raises:
        Misuse: it has a handle, and the caller's rights do not show that of its own account.

    """
    own_id = client.account_id
    if own_id is None:  # a person without a role, whom the registry refuses
        return crn
    if (given := parse_uuid(crn.account)) is None and crn.account == _handle(client, own_id):
        given = own_id
    return crn._replace(account=own_id) if given == own_id else None


def _handle(client: ApiClient, account_id: str) -> str:
    try:
        handle: str = client.call("GET", f"/v1/accounts/{account_id}")["account"]["handle"]
    except RequestRefused as error:
        if error.status != 403:
            raise
        raise Misuse(
            "your rights do not show the handle of your account; write its id in the CRN instead,"
            f" {account_id}"
        ) from None
    return handle
