"""Keys of accounts: ``/v1/keys``, and the port through which families wrap data keys under them.

`key` describes one, `services` and `rules` change it, `providers` wrap its material, and `vault`,
the port for other families, encrypts under it without revealing it.
"""
