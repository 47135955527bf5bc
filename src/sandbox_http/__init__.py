"""HTTP/1.1 with bounds, for the server and the engine: their protocol, their connections upstream, tunnels between both."""
