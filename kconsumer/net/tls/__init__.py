"""TLS: the transport, its context, and what its failures mean."""
