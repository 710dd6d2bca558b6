"""A model of a Kafka cluster without sockets, threads or a clock of its own.

`Cluster` receives bytes of connections together with the current time, changes its state, and returns bytes. Its
driver supplies the time: `FakeCluster` serves it on loopback sockets, tests drive it with virtual time.
"""
