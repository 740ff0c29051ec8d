"""Keys of accounts: ``/v1/keys``, and the port by which other families wrap data keys under them.

`key` describes one, `services` and `rules` change it, `providers` wrap its material, and `vault`
encrypts under it without showing it: the port that other families use.
"""
