"""Device and interface counters of a run, and warnings about those that should not have grown."""
