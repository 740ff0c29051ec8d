"""Read stored bytes, to find those that a disk has damaged."""
