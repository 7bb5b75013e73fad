"""Files of other simulators and of NCCL, as fabrics and workloads of the twin."""
