"""Which cloud the node is rented from, as far as its firmware tells. Nothing is asked over the network."""

import re

from gpuagent.facts.surroundings import Surroundings

# The asset tag of every virtual machine of Azure (cloud-init's DataSourceAzure checks the same).
_AZURE_CHASSIS = "7783-7084-3265-9085-8269-3286-77"

_VENDORS = (
    ("google", "gcp"),
    ("amazon", "aws"),
    ("alibaba cloud", "alibaba"),
    ("digitalocean", "digitalocean"),
    ("hetzner", "hetzner"),
    ("scaleway", "scaleway"),
    ("openstack", "openstack"),
)

_AWS_INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def detect_cloud_provider(surroundings: Surroundings) -> str | None:
    """Return gcp, aws, azure, oracle, …, or None where the firmware names none."""
    asset_tag = surroundings.dmi("chassis_asset_tag")
    if asset_tag == _AZURE_CHASSIS:
        return "azure"
    if asset_tag == "OracleCloud.com":
        return "oracle"
    # Instances of EC2 on Xen name Xen as their vendor, and Amazon only as the maker of the firmware.
    names = " ".join(surroundings.dmi(name) for name in ("sys_vendor", "product_name", "bios_version")).lower()
    return next((provider for vendor, provider in _VENDORS if vendor in names), None)


def detect_instance_type(surroundings: Surroundings) -> str | None:
    """Return the machine type, as g5.xlarge: EC2's firmware alone tells it."""
    product = surroundings.dmi("product_name")
    is_type = detect_cloud_provider(surroundings) == "aws" and _AWS_INSTANCE_TYPE.fullmatch(product)
    return product if is_type else None
