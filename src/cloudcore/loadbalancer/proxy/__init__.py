"""The embedded proxy, a program of its own: `program` listens, and each connection has a part.

`heads` reads and writes heads of HTTP, `relay` passes requests and streams on, and `targets` checks
where they may go. All import the standard library alone, since a machine runs many of them.
"""
