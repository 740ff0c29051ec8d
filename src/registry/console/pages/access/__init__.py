"""Pages of who may do what: sign-in, accounts, people, service accounts, roles and policies."""
