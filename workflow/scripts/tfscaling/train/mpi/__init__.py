"""MPI: the library, sums over ranks, and the strategy `mpi_all_reduce`."""
