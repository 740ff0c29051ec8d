"""Kept answers: a cache of answers that are sent again while a read proves that they are the same.

`entry` is one answer with its proof, `cache` all of a worker. See docs/explanation/kept-answers.md.
"""
