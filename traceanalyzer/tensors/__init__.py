"""Which data: what ops read, make and cost, by their recorded inputs."""
