"""Print for a person or a program, show progress, and ask for confirmation and secrets."""
