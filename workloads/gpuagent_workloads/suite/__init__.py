"""The workloads, one file each; `gpuagent_workloads.registry` lists them."""
