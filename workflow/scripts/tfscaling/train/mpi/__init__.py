"""MPI for the strategy `mpi_all_reduce`: the library, sums over ranks, and the strategy itself."""
