"""The errors of the S3 endpoint: an S3 code, a status, and an XML document.

For operations that are not implemented, AWS answers 501. Here the status is 400, with the same
code, as 5xx would mean that the server failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudcore.errors import InvalidInput

STATUS_OF: Final[Mapping[str, int]] = {
    "AccessControlListNotSupported": 400,
    "AccessDenied": 403,
    "AccessForbidden": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "BadDigest": 400,
    "BucketAlreadyExists": 409,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "ConditionalRequestConflict": 409,
    "EntityTooLarge": 400,
    "EntityTooSmall": 400,
    "ExpiredToken": 400,
    "IllegalLocationConstraintException": 400,
    "IncompleteBody": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidBucketName": 400,
    "InvalidBucketState": 409,
    "InvalidDigest": 400,
    "InvalidPart": 400,
    "InvalidPartNumber": 416,
    "InvalidPartOrder": 400,
    "InvalidPolicyDocument": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidStorageClass": 400,
    "InvalidTag": 400,
    "InvalidToken": 400,
    "InvalidURI": 400,
    "KMS.DisabledException": 403,
    "KMS.NotFoundException": 404,
    "KeyTooLongError": 400,
    "MalformedPOSTRequest": 400,
    "MalformedXML": 400,
    "MaxPostPreDataLengthExceededError": 400,
    "MetadataTooLarge": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "NoSuchBucket": 404,
    "NoSuchBucketPolicy": 404,
    "NoSuchCORSConfiguration": 404,
    "NoSuchConfiguration": 404,
    "NoSuchKey": 404,
    "NoSuchLifecycleConfiguration": 404,
    "NoSuchPublicAccessBlockConfiguration": 404,
    "NoSuchTagSet": 404,
    "NoSuchUpload": 404,
    "NoSuchVersion": 404,
    "NoSuchWebsiteConfiguration": 404,
    "NotImplemented": 400,
    "ObjectLockConfigurationNotFoundError": 404,
    "OperationAborted": 409,
    "OwnershipControlsNotFoundError": 404,
    "PreconditionFailed": 412,
    "QuotaExceeded": 403,
    "ReplicationConfigurationNotFoundError": 404,
    "RequestTimeTooSkewed": 403,
    "RequestTimeout": 400,
    "ServerSideEncryptionConfigurationNotFoundError": 404,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "TooManyBuckets": 400,
    "XAmzContentSHA256Mismatch": 400,
}


class S3Error(InvalidInput):
    """An S3 error; `details` are additional elements of its XML document.

    ``/v1`` uses the same parsers of headers; it answers such an error with 400.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = STATUS_OF[code]
        self.details = details or {}
        self.headers = headers or {}
