"""Lifecycle policies: which images of a repository go, said by rules, shown before, done daily.

rules       the document, checked
selection   which images the rules take: pure, and the same for preview and run
tagging     which rules a tag lets select its image, and what a signature's tag is about
scan        what the selection needs to know of images, read from the database
policies    the one policy a repository may have
preview     what a run would do, and what that would free
runs        the work itself: planned once, checked again where each image is deleted
"""
