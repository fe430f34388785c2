"""Container images of the workloads: built from the project's recipes, moved, and what that took kept on the node."""
