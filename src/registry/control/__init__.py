"""The control plane: what an operator and a program ask beside the distribution API."""
