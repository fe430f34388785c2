"""What runs cost: prices that the user states, and the figures that follow from them."""
