"""The HTTP/1.1 protocol of a connection: heads, request cycles, responses.

`protocol` is one connection, `head` parses requests, `request_cycle` runs one of them, `response`
renders heads, `replay` answers from kept answers, and `worker` is the state that the connections of
a process share. Bodies are in `bodies`.
"""
