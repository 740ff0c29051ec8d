"""What the platform dials: addresses are vetted before a connection is made to them."""
