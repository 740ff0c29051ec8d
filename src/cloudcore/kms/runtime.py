"""The KMS family in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.kms import routes
from cloudcore.kms.chores import delete_due_keys
from cloudcore.kms.key import STORED_KEYS
from cloudcore.kms.needs import OFFERS, KmsNeeds, open_needs
from cloudcore.kms.rows import KEY_ROWS, keys_by_account
from cloudcore.resources.routes import handlers_of

_DELETION_SECONDS: Final = 900

RUNTIME: Final[Runtime[KmsNeeds]] = Runtime(
    open=open_needs,
    offers=OFFERS,
    routes=handlers_of(routes.KEYS, routes),
    schedule=scheduled(("kms.due_deletions", _DELETION_SECONDS, delete_due_keys)),
    samples={STORED_KEYS.name: keys_by_account},
    uses=(KEY_ROWS.counted,),
)
