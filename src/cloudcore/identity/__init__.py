"""Identity: who is asking, and what they may do. Every other family may use it."""
