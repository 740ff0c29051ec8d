"""The rules of identity: changes over a connection, which both routes and commands make."""
