"""Profile: the operators, kernels and copies that took the time of a step, in one run or in two side by side."""
