"""A real Slurm cluster with several nodes on one machine."""
