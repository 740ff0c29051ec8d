"""The vocabulary of OCI: pure values and their grammars, without I/O and without a clock."""
