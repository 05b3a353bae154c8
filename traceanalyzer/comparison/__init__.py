"""Two recordings or two jobs: what changed, by how much, and whether it is more than noise."""
