"""Rows of the pull-through cache: its rules, and what is known of their upstreams."""
