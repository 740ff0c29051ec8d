"""The HTTP server: the protocol, bulk threads, dispatch to applications, counters and logs."""
