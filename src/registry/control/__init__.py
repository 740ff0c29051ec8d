"""The registry's part of the control plane ``/v1``, a module for each noun; `routes` lists them.

A handler authorizes, calls a service or reads a query, and makes the answer; those of runs are in
`bodies`. It takes no lock and publishes no event.
"""
