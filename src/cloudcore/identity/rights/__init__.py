"""The rights of principals: their policies, decisions about them, and roles that they assume.

- `permissions`: loads the policies of a principal.
- `documents`: stores policies with the ids that their names mean.
- `own_rights`, `simulation`: compute decisions for clients.
- `lock_out`: refuses changes by which a caller loses the right to grant rights.
- `role_trust`, `assume_role`, `service_sessions`: let principals act in roles.
"""
