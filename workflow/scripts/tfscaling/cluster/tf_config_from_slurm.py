"""The cluster of a job with one process per node, for ``tf.train.Server``.

The call and its three results are those of the module `tensorflow_on_slurm`, which scripts for
TensorFlow 1 import.  New code uses `tfscaling.cluster`.
"""

from __future__ import annotations

import os

from tfscaling.cluster import slurm_environment as slurm
from tfscaling.cluster.task_layout import ClusterError, is_count, port_range


def tf_config_from_slurm(
    ps_number: int, port_number: int = 2222
) -> tuple[dict[str, list[str]], str, int]:
    """Make the first nodes of the job parameter servers, and the others workers.

    Reads SLURM_JOB_NODELIST, SLURM_JOB_NUM_NODES and SLURMD_NODENAME, which are the same in all
    processes of a job, so that no step is needed.

    Args:
        ps_number: number of parameter servers.
        port_number: port of every process.

    Returns:
        The cluster ``{"ps": ["host:port", ...], "worker": [...]}``, the job of this node (``ps``
        or ``worker``), and its index in its job.

    Raises:
        ClusterError: a variable is missing, broken or contradicts the others; or there is no node
            left for a worker.
    """
    hosts, own_host = slurm.allocation(os.environ)
    if not is_count(ps_number) or ps_number >= len(hosts):
        raise ClusterError(
            f"ps_number is {ps_number!r} for {len(hosts)} nodes ({', '.join(hosts)});"
            f" expected 0 to {len(hosts) - 1}, to leave a node for a worker"
        )
    (port,) = port_range(port_number, 1)
    job_hosts = {"ps": hosts[:ps_number], "worker": hosts[ps_number:]}
    cluster = {job: [f"{host}:{port}" for host in names] for job, names in job_hosts.items()}
    my_job_name = "ps" if own_host in job_hosts["ps"] else "worker"
    return cluster, my_job_name, job_hosts[my_job_name].index(own_host)
