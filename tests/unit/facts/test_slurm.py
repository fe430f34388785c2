from pathlib import Path

from gpuagent.facts import slurm_labels
from tests.support.trees import node

ARRAY_TASK = {
    "SLURM_CLUSTER_NAME": "satori",
    "SLURM_JOB_ID": "43",
    "SLURM_ARRAY_JOB_ID": "42",
    "SLURM_ARRAY_TASK_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_JOB_USER": "",
    "SLURM_JOB_GPUS": "0,1",
}


def test_an_agent_in_a_job_has_its_labels(tmp_path: Path) -> None:
    assert slurm_labels(node("slurm_job", tmp_path)) == {"slurm_job_id": "42", "slurm_job_nodelist": "n1"}


def test_a_task_of_an_array_has_no_empty_labels(tmp_path: Path) -> None:
    assert slurm_labels(node("bare", tmp_path, environment=ARRAY_TASK)) == {
        "slurm_cluster_name": "satori",
        "slurm_job_id": "43",
        "slurm_array_job_id": "42",
        "slurm_array_task_id": "7",
        "slurm_job_nodelist": "n[1-4]",
    }


def test_leftover_variables_make_no_job(tmp_path: Path) -> None:
    environment = {"SLURM_CLUSTER_NAME": "satori", "SLURM_JOB_NODELIST": "n1"}
    assert slurm_labels(node("bare", tmp_path, environment=environment)) == {}
