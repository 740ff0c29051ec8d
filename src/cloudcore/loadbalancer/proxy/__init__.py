"""The embedded proxy, a separate program.

`program`: listens and handles connections.
`heads`: parses and writes HTTP heads.
`relay`: forwards requests and streams.
`targets`: checks the health of targets and selects them.

All import only the standard library, since a machine runs many proxies.
"""
