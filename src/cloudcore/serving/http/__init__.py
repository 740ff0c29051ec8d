"""The HTTP/1.1 protocol of a connection: heads, request cycles, responses.

- `protocol`: one connection.
- `head`: parses the heads of requests.
- `request_cycle`: runs one request.
- `response`: renders the heads of responses.
- `replay`: answers requests from kept answers.
- `worker`: state that the connections of a process share.

Bodies are in `bodies`.
"""
