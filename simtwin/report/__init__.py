"""report.html of a simulation: links on the drawn topology, queues over time, flows, and the ranks' time."""

from simtwin.report.write import simulation_report, write_simulation_report

__all__ = ["simulation_report", "write_simulation_report"]
