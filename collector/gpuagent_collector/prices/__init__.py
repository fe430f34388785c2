"""Costs of runs: prices that the user states, and the figures that follow from them."""
