"""Which code costs what: the tree of a step's phases, annotations, modules, functions, repeated blocks and ops."""
