"""Print to the terminal or to a program, show progress, and ask before what is hard to undo."""
