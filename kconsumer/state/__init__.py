"""The consumer's cached state: cluster metadata, subscription, assigned partitions. These modules do no I/O."""
