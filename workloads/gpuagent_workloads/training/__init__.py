"""What training workloads share: parameters, device, precision, and a loop that times steps without disturbing them."""
