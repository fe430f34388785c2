"""Reading the store: what is allowed, how it is executed, and from where."""
