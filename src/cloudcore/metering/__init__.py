"""Metering: what accounts use, summed by hour; families report it where it happens."""
