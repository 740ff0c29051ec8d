"""The family of email: whom an account sends mail, from where, and to whom never again."""
