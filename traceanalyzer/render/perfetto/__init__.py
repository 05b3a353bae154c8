"""Overlays as files that Perfetto opens beside a trace, and addresses that open its viewer at a finding."""
