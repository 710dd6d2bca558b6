"""TLS connections: the transport, the `ssl.SSLContext` from the options, and the texts of errors."""
