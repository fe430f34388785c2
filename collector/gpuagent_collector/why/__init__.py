"""The causes of a difference: an experiment that changes one fact after the other, and the ratio divided among them."""
