"""Profile: which operators, kernels and copies took the time of a step, in one run or in two side by side."""
