"""The connections to brokers: sockets, TLS, SASL, requests and responses. Nothing here depends on consumer groups."""
