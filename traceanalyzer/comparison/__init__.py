"""Two recordings, or two jobs: what changed between them, by how much, and whether it is more than noise."""
