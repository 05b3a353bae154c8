"""How fast and how large: run `make bench`."""
