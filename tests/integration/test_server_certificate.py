"""The certificate of the server itself, of the install's own authority."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from cloudcore.certificate.embedded import write_server_certificate
from cloudcore.clock import MICROSECONDS
from cloudcore.own_certificate.paths import own_certificate, root_file
from cloudcore.own_certificate.renewal import names_in
from cloudcore.serving.tls.files import load_tls
from tests.databases import on_both_databases
from tests.integration.certificates_world import World


@on_both_databases
async def test_it_has_names_and_addresses_and_is_of_the_root_beside_it(
    certified: World, tmp_path: Path
) -> None:
    served, names = certified.served, ("localhost", "127.0.0.1", "::1")
    await write_server_certificate(served.database, served.certificates.embedded, names, tmp_path)
    files = own_certificate(tmp_path)
    assert not load_tls(files, served.clock() / MICROSECONDS).is_stand_in
    chain = files.certificate.read_bytes()
    assert names_in(chain) == set(names)
    leaf, issuing = x509.load_pem_x509_certificates(chain)
    (root,) = x509.load_pem_x509_certificates(root_file(tmp_path).read_bytes())
    leaf.verify_directly_issued_by(issuing)
    issuing.verify_directly_issued_by(root)
    assert root.subject == root.issuer
