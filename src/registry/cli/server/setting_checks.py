"""Check the settings as ``entrepot serve`` does, without touching the data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from cloudcore.billing.stripe_processor import StripeMissing, StripeProcessor
from cloudcore.catalog.documents import CatalogInvalid, load_catalog
from cloudcore.family import skus_of
from cloudcore.kms.providers import AwsMissing, AwsProvider
from cloudcore.serving.tls.files import TlsFilesError, load_tls
from registry.blobstore.opening import open_bucket
from registry.blobstore.s3.bucket_check import unsupported_calls
from registry.cli.server.run_server import listening_problem
from registry.composition.drivers import check_drivers
from registry.composition.families import FAMILIES
from registry.composition.planes import planes_of
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError


def refusals(settings: Settings) -> Iterator[str]:
    """Yield each reason why ``serve`` would refuse these settings, with the setting's name.

    Listening is tried at each address, but at a free port: a server may be running already.
    """
    try:
        settings.check_has_url()
    except SettingsError as error:
        yield f"host: {error}"
    try:
        planes_of(settings)
    except SettingsError as error:
        yield str(error)
    makes_own = settings.acme_folder is not None or settings.own_folder is not None
    if settings.tls_files is not None and not makes_own:
        try:
            load_tls(settings.tls_files, time.time())
        except TlsFilesError as error:
            yield f"tls_certificate: {error}"
    addresses = {
        "host": (settings.host, settings.port),
        "metrics": settings.metrics_address,
        "tls_acme_http": settings.acme.http_address,
        "dns_listen": settings.certificates.dns_address,
        "bounce_listen": settings.email.bounce_address,
    }
    for name, address in addresses.items():
        if address is not None and (problem := listening_problem(address[0])):
            yield f"{name}: this machine cannot listen on {address[0]!r}: {problem}"
    try:
        check_drivers(settings)
    except SettingsError as error:
        yield str(error)
    try:
        load_catalog(
            settings.catalog,
            settings.region,
            settings.url,
            skus_of(FAMILIES),
            settings.own_urls.items(),
        )
    except CatalogInvalid as error:
        yield f"catalog_file: {error}"
    yield from _client_refusals(settings)


def _client_refusals(settings: Settings) -> Iterator[str]:
    """Yield why the clients of Stripe, AWS KMS and S3 cannot be used."""
    if settings.billing.payment_processor == "stripe":
        try:
            StripeProcessor(settings.billing.read_key(), settings.billing.stripe_endpoint).close()
        except (StripeMissing, ValueError) as error:
            yield f"payment_processor: {error}"
    if settings.kms_aws_key:
        try:
            AwsProvider(settings.kms_aws_key, settings.kms_aws_endpoint)
        except AwsMissing as error:
            yield f"kms_aws_key: {error}"
    if settings.store.store_s3_bucket:
        yield from _bucket_refusals(settings)


def _bucket_refusals(settings: Settings) -> Iterator[str]:
    """Yield what the bucket of the blobs does not support, tested with a temporary object."""
    try:
        bucket = open_bucket(settings)
    except SettingsError as error:
        yield str(error)
        return
    with closing(bucket):
        for refusal in unsupported_calls(bucket):
            yield f"store_s3_bucket: {refusal}"
