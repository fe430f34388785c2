import uuid
from pathlib import Path

from gpuagent.facts import Surroundings, node_uuid
from tests.support.trees import node, plant

MACHINE_ID = f"{'1' * 32}\n"
MACHINE_MOUNT = "90 80 8:1 /etc/machine-id /etc/machine-id ro,relatime - ext4 /dev/sda1 rw\n"


def boot(given: Surroundings, boot_id: str) -> Surroundings:
    plant(given.proc, {"sys/kernel/random/boot_id": boot_id})
    return given


def test_an_identity_is_a_uuid_of_one_node_that_survives_a_restart(tmp_path: Path) -> None:
    given = node("bare", tmp_path)
    identity = node_uuid(given)
    assert str(uuid.UUID(identity)) == identity
    # The machine ID itself is not to be shown.
    assert "1111" not in str(identity)
    assert node_uuid(boot(given, "0b5f0000-0000-4000-8000-00000000ffff")) == identity
    assert node_uuid(node("gce", tmp_path)) != identity


def test_containers_of_two_images_on_one_host_agree_and_those_of_two_hosts_differ(tmp_path: Path) -> None:
    one, other = node("docker", tmp_path / "one"), node("docker", tmp_path / "other")
    plant(other.root, {"etc/machine-id": "88888888888888888888888888888888\n"})
    assert node_uuid(one) == node_uuid(other) is not None
    elsewhere = boot(node("docker", tmp_path / "elsewhere"), "0b5f0000-0000-4000-8000-00000000ffff")
    assert node_uuid(one) != node_uuid(elsewhere) is not None


def test_a_mounted_machine_id_is_the_hosts(tmp_path: Path) -> None:
    bare, contained = node("bare", tmp_path), node("docker", tmp_path)
    plant(contained.root, {"etc/machine-id": MACHINE_ID, "proc/self/mountinfo": MACHINE_MOUNT})
    assert node_uuid(contained) == node_uuid(bare)


def test_an_unset_machine_id_is_absent_or_that_of_dbus(tmp_path: Path) -> None:
    given = node("bare", tmp_path)
    expected = node_uuid(given)
    for unset in ("", "uninitialized\n", "short\n"):
        plant(given.root, {"etc/machine-id": unset})
        assert node_uuid(given) is None
    (given.root / "etc/machine-id").unlink()
    plant(given.root, {"var/lib/dbus/machine-id": MACHINE_ID})
    assert node_uuid(given) == expected


def test_the_users_choice_comes_first(tmp_path: Path) -> None:
    given = node("bare", tmp_path)
    assert node_uuid(given, "6F9619FF-8B86-D011-B42D-00C04FC964FF") == "6f9619ff-8b86-d011-b42d-00c04fc964ff"
    assert node_uuid(given, "node-7") == node_uuid(node("docker", tmp_path), "node-7")
    assert node_uuid(given, "node-7") != node_uuid(given, "node-8")
