"""What we believe of the cluster and of our own partitions; no I/O."""
