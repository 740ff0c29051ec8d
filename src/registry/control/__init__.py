"""The registry's part of the control plane ``/v1``, a module for each noun; `routes` lists them.

A handler authorizes, calls a service or a query, and builds the response; it takes no lock and
publishes no event. Response bodies for runs are in `bodies`.
"""
