"""One pattern per file. A rule is found by being here; nothing lists it."""
