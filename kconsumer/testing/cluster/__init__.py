"""A model of a Kafka cluster without sockets, threads or a clock of its own.

`Cluster` receives bytes of connections together with the current time, changes its state, and returns bytes. The code
that calls it is its driver: `FakeCluster` passes bytes from loopback sockets, and unit tests use virtual time.
"""
