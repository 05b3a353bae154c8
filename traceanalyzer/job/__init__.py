"""Many ranks as one job: their collectives paired, and what each rank computes."""
