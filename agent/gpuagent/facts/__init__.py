"""Facts that are detected once: the node, its GPUs, and its identity."""

from gpuagent.facts.gpus import DeviceFacts, Firmware, collect_device_facts, collect_firmware
from gpuagent.facts.layers import job_labels
from gpuagent.facts.node import Machine, NodeFacts, collect_node_facts, find_machine, node_uuid
from gpuagent.facts.surroundings import Surroundings
from gpuagent.facts.topology import DevicePath, Link, collect_topology

__all__ = [
    "DeviceFacts",
    "DevicePath",
    "Firmware",
    "Link",
    "Machine",
    "NodeFacts",
    "Surroundings",
    "collect_device_facts",
    "collect_firmware",
    "collect_node_facts",
    "collect_topology",
    "find_machine",
    "job_labels",
    "node_uuid",
]
