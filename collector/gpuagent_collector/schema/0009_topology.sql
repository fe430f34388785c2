-- The place of each GPU and network interface in its node, as each session found it.
CREATE TABLE session_links (
    session_id BIGINT,                    -- | the agent process that read it | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    device_id BIGINT,                     -- | the GPU; NULL: a network interface | agent
    name VARCHAR,                         -- | of the network interface: eth0, mlx5_0, …; NULL: a GPU | sysfs
    pci_bus_id VARCHAR,                   -- | its PCI address, as sysfs has it | NVML, sysfs
    numa_node BIGINT,                     -- | the NUMA node that it is at; NULL: the firmware does not say | sysfs
    nvlinks_to_gpus BIGINT,               -- | active NVLinks that end at another GPU; NULL: has no NVLink, or not shown | NVML
    nvlinks_to_switches BIGINT,           -- | active NVLinks that end at an NVSwitch; NULL: has no NVLink, or not shown | NVML
    network_bits_per_second BIGINT,       -- bit/s | speed of the network link; NULL: a GPU, a link that is down, or a virtual one | sysfs
    pcie_transfers_per_second DOUBLE,     -- T/s | of a network interface: speed of a PCIe lane at that time; a GPU's is in session_devices | sysfs
    pcie_width BIGINT                     -- lanes | of a network interface: PCIe link width at that time; a GPU's is in session_devices | sysfs
);

-- The paths between the GPUs of a node, each pair once, and from each GPU to each network interface.
CREATE TABLE session_paths (
    session_id BIGINT,                    -- | the agent process that read it | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    device_id BIGINT,                     -- | the GPU | agent
    peer_device_id BIGINT,                -- | the other GPU; NULL: a network interface | agent
    peer_name VARCHAR,                    -- | the network interface; NULL: a GPU | sysfs
    pcie_path VARCHAR,                    -- | where they meet: PIX one PCIe switch, PXB several, PHB the host bridge, NODE the NUMA node, SYS beyond it; NULL: not shown | sysfs
    nvlinks BIGINT                        -- | active NVLinks between the two GPUs, straight or through NVSwitches, as in nvidia-smi topo -m (NV18); NULL: has no NVLink, not shown, or a network interface | NVML
);
