"""Lifecycle policies: rules that expire images of a repository, previewed on demand, run daily.

rules       the document of a policy: checked, parsed and compiled
selection   which images expire: a pure function, the same for preview and run
tagging     which rules the tags of an image match, and the subject that a signature's tag names
scan        the images and edges that the selection needs, read from the database
policies    store, read and delete the policy of a repository
plans       the portions that a run deletes, and the cursor between them
freed       the bytes that deleting images frees
preview     which images a run would delete now, and the bytes that frees
runs        plan once, then delete portion by portion, each selected again in its transaction
"""
