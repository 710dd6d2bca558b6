"""The ordinary I/O of connections, TLS on the descriptor of a socket, and the thread that receives large frames.

The parts are in the folder of this name.
"""

include "net/openssl.pyx"
include "net/receiver.pyx"
include "net/epoll_selector.pyx"
include "net/connection_io.pyx"
