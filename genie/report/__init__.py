"""Pages and files of a verdict: report.html, the Perfetto trace and metrics."""
