"""The ``entrepot`` command, a module for each noun or command."""
