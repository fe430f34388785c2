"""The workloads, a file or folder each; `gpuagent_workloads.registry` lists them."""
