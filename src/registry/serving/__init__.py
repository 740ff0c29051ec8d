"""The server side: HTTP protocol, bulk transfer threads, dispatch, logs, metrics, workers."""
