"""Identity: who the caller is and what it may do. Every other family may use it."""
