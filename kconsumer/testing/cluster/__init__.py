"""A model of a Kafka cluster without sockets, threads or a clock of its own.

`Cluster` receives bytes of connections together with the current time, changes its state, and returns bytes. The code
that calls `Cluster` is its driver. `FakeCluster` is a driver that passes bytes from loopback sockets. Unit tests are
drivers with virtual time.
"""
