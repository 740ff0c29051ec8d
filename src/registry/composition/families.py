"""The tuple of the platform's families.

The command line and Alembic import this module too, so it must be cheap to import.
"""

from __future__ import annotations

from typing import Any, Final

from cloudcore.audit.family import AUDIT
from cloudcore.billing.family import BILLING
from cloudcore.catalog.family import CATALOG
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.compute.family import COMPUTE
from cloudcore.databases.family import DATABASES
from cloudcore.email.family import EMAIL
from cloudcore.family import Family
from cloudcore.identity.family import IDENTITY
from cloudcore.kernel_families import KERNEL, METERING, QUOTAS
from cloudcore.kms.family import KMS
from cloudcore.loadbalancer.family import LOADBALANCER
from cloudcore.network.family import NETWORK
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.queue.family import QUEUES
from cloudcore.storage.family import STORAGE
from registry.composition.family import REGISTRY

FAMILIES: Final[tuple[Family[Any], ...]] = (
    KERNEL,
    IDENTITY,
    AUDIT,
    QUOTAS,
    KMS,
    NOTIFICATIONS,
    REGISTRY,
    QUEUES,
    CERTIFICATE,
    EMAIL,
    NETWORK,
    LOADBALANCER,
    COMPUTE,
    STORAGE,
    DATABASES,
    BILLING,
    METERING,
    CATALOG,
)
