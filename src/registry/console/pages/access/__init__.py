"""Pages of access: sign-in, accounts, people, service accounts, roles and policies."""
