"""Code of all training workloads: parameters, device, precision, and a loop that times steps undisturbed."""
