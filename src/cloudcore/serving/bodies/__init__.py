"""Request and response bodies between sockets, memory and files.

- `framing`: finds the end of a body.
- `request_body`: leaves a body in the socket until it is read.
- `receiving`, `sending`: jobs that move large bodies, in the threads of `bulk`.
- `budget`: limits the memory for small bodies.
"""
