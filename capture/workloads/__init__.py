"""One module per workload; `capture.workload.discover` finds every `WORKLOAD` in here."""
