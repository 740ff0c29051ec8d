"""Keys of accounts: ``/v1/keys``, and how other families wrap data keys under them."""
