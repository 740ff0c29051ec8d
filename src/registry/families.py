"""Part of the composition root: the tuple of the platform's families.

The command line and Alembic import it too, so it must be cheap to import. Each entry takes what its
family needs from the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.audit.family import AUDIT
from cloudcore.catalog.family import CATALOG
from cloudcore.catalog.needs import CatalogNeeds
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.email.family import EMAIL
from cloudcore.family import Family
from cloudcore.identity.family import IDENTITY
from cloudcore.kernel_family import KERNEL
from cloudcore.kms.family import KMS
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.queue.family import QUEUES
from cloudcore.storage.family import STORAGE
from registry.family import REGISTRY

if TYPE_CHECKING:
    from registry.process import Process, ServingProcess

FAMILIES: Final[tuple[Family[ServingProcess], ...]] = (
    KERNEL.given(lambda process: process.ctx),
    IDENTITY.given(lambda process: process.identity),
    AUDIT.given(lambda process: process.audit),
    KMS.given(lambda process: process.kms),
    NOTIFICATIONS.given(lambda process: process.notifications),
    REGISTRY,
    QUEUES.given(lambda process: process.queue),
    CERTIFICATE.given(lambda process: process.certificates),
    EMAIL.given(lambda process: process.settings),
    STORAGE.given(lambda process: process.storage),
    CATALOG.given(
        lambda process: CatalogNeeds(
            process.settings.catalog, process.settings.region, process.settings.url
        )
    ),
)
DEV_FAMILIES: Final[tuple[Family[Process], ...]] = (
    KERNEL.given(lambda process: process.ctx),
    REGISTRY,
)
"""The families of ``entrepot dev``, which has no sign-in."""
