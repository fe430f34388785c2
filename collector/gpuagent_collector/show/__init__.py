"""One run, or the runs of one side: everything that the store has of them."""
