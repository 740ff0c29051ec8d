"""What is done on one machine: rows that name it, and processes that outlive the service."""
