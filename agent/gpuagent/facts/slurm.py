"""The Slurm job around the agent."""

from gpuagent.facts.surroundings import Surroundings

_VARIABLES = (
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_USER",
)


def slurm_labels(surroundings: Surroundings) -> dict[str, str]:
    """Return labels that say which job the agent is in, by Slurm's names in lower case; none where there is no job."""
    environment = surroundings.environment
    if "SLURM_JOB_ID" not in environment:
        return {}
    return {name.lower(): environment[name] for name in _VARIABLES if environment.get(name)}
