"""Runs as root in a sandbox: sends a datagram that claims to come from another address."""

import socket
import struct
import sys

source, destination, port, said = sys.argv[1:]
payload = said.encode()
udp = struct.pack("!4H", 5353, int(port), 8 + len(payload), 0) + payload
head = struct.pack("!2B3H2BH", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0)
packet = head + socket.inet_aton(source) + socket.inet_aton(destination) + udp
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
    sender.sendto(packet, (destination, 0))
