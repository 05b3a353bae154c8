"""One module per workload; `capture.workload.discover` finds the `WORKLOADS` of each in here."""
