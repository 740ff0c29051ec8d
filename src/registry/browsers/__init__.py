"""What web pages may do here: reads of listed origins, and nothing without sign-in."""
