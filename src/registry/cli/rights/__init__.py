"""The commands for people, programs and their rights."""
