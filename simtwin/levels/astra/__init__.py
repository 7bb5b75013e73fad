"""ASTRA-sim: its configuration files, and its congestion-unaware analytical backend as a cost model."""
