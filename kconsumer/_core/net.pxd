"""What the parts of net.pyx declare."""

include "net/openssl.pxd"
include "net/connection_io.pxd"
