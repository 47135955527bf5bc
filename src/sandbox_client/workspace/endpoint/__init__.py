"""One side of a directory that two machines share. It runs on both, in the sandbox by itself: standard library alone."""
