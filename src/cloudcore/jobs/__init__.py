"""Work that outlives the request that asked for it: a table of jobs, and workers that run them."""
