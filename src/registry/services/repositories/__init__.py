"""Find repositories by name, and manage those of an account."""
