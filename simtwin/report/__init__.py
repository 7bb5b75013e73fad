"""report.html of a simulation: its links on the drawn topology, queues over time, flows, and what ranks did."""

from simtwin.report.write import simulation_report, write_simulation_report

__all__ = ["simulation_report", "write_simulation_report"]
