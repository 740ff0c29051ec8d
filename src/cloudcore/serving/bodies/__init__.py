"""Request and response bodies between sockets, memory and files.

`framing` finds the end of a body, `request_body` leaves it in the socket until it is read,
`receiving` and `sending` are the jobs that move large bodies in the threads of `bulk`, and `budget`
limits the memory for small ones.
"""
