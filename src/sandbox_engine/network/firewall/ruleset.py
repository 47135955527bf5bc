"""Egress rules of sandboxes as one nftables table per engine: a pure function.

    from a sandbox   prerouting    its own address on its own link, or dropped
                       online      our DNS and git door; nothing denied; anything else
                       offline     the git door; our DNS, which answers that it refuses to
                       judge       of new connections, what the sandbox's own policy leaves
                     forward       so many connections at once and no more
                     postrouting   leaves with the host's address
    to a sandbox     forward, output   only what it asked for

Prerouting comes before connection tracking and address translation: no redirection on the host
opens what is denied, and what is denied costs next to nothing. What is no element of `links` gets
nowhere. A sandbox's own policy (see egress) is asked where a connection begins, after that.
DNS and the git door (see sandbox_engine.git) answer on ports of their own, for another server may
have taken ports 53 and 80 of all of the host's addresses; both ways the port is rewritten.
"""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network
from string import Template

_DENIED = (
    "10.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",  # link-local; clouds serve machine credentials here
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.100.100.200",  # Alibaba Cloud's metadata service
    "192.0.0.192",  # Oracle Cloud's metadata service
)

# More than a sandbox needs. Without a limit one sandbox could fill the host's connection table and
# block all connections.
_CONNECTIONS = 2048
_QUERY_RATE = "200/second burst 400 packets"

_TABLE = Template("""
add table inet $table
delete table inet $table
table inet $table {
    map links { type ifname . ipv4_addr : verdict; }
    map policies { type ifname : verdict; }
    set allowed { type ipv4_addr; flags interval; auto-merge; }
    set denied { type ipv4_addr; flags interval; auto-merge; }
    set connected { type ipv4_addr; flags interval; auto-merge; }
    set connections { type ipv4_addr; size 65536; flags dynamic; }
    set queries { type ipv4_addr; size 65536; flags dynamic; timeout 1m; }

    chain refuse {
        meta l4proto tcp reject with tcp reset
        reject with icmp admin-prohibited
    }
    chain resolver {
        udp dport 53 update @queries { ip saddr limit rate $query_rate } \\
            udp dport set $udp_port notrack accept
        tcp dport 53 update @queries { ip saddr limit rate $query_rate } \\
            tcp dport set $tcp_port notrack accept
        meta l4proto { tcp, udp } th dport 53 drop
        goto refuse
    }
    chain engine {
        tcp dport 80 tcp dport set $git_port notrack accept
        goto resolver
    }
    chain offline {
        ip daddr $gateway goto engine
        goto refuse
    }
    chain online {
        ip daddr $gateway goto engine
        ip daddr @allowed accept
        ip daddr @denied goto refuse
        ip daddr @connected goto refuse
        fib daddr type != unicast goto refuse
        accept
    }
    chain prerouting {
        type filter hook prerouting priority raw; policy accept;
        iifname != "$links" ip daddr $gateway drop
        iifname != "$links" accept
        meta nfproto != ipv4 drop
        iifname . ip saddr vmap @links
        drop
    }
    chain judge {
        type filter hook prerouting priority mangle; policy accept;
        iifname != "$links" accept
        ct state invalid drop
        ct state established,related,untracked accept
        iifname vmap @policies
    }
    chain answers {
        type filter hook output priority raw; policy accept;
        ip saddr $gateway udp sport $udp_port udp sport set 53 notrack
        ip saddr $gateway tcp sport $tcp_port tcp sport set 53 notrack
        ip saddr $gateway tcp sport $git_port tcp sport set 80 notrack
    }
    chain forward {
        type filter hook forward priority filter; policy accept;
        oifname "$links" ct state established,related accept
        oifname "$links" drop
        iifname "$links" ct state new add @connections { ip saddr ct count over $most } \\
            goto refuse
    }
    chain output {
        type filter hook output priority filter; policy accept;
        oifname "$links" ct state new drop
    }
    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr $subnet oifname != "$links" masquerade
    }
}
""")


def ruleset(
    table: str,
    *,
    links: str,
    subnet: IPv4Network,
    gateway: IPv4Address,
    dns_ports: tuple[int, int],
    git_port: int,
    allowed: Collection[IPv4Network],
    connected: Collection[IPv4Network],
) -> str:
    """Recreate the table atomically; `links` is a wildcard."""
    udp_port, tcp_port = dns_ports
    rules = _TABLE.substitute(
        table=table,
        links=links,
        subnet=subnet,
        gateway=gateway,
        udp_port=udp_port,
        tcp_port=tcp_port,
        git_port=git_port,
        most=_CONNECTIONS,
        query_rate=_QUERY_RATE,
    )
    sets = ("allowed", allowed), ("denied", _DENIED), ("connected", connected)
    return rules + "".join(elements(table, name, networks) for name, networks in sets)


def connected_networks(table: str, networks: Collection[IPv4Network]) -> str:
    """Replace the set of networks that the host is connected to."""
    return f"flush set inet {table} connected\n" + elements(table, "connected", networks)


def absence(table: str) -> str:
    """Delete the table."""
    return f"add table inet {table}\ndelete table inet {table}\n"


def elements(table: str, name: str, members: Collection[object]) -> str:
    """Add elements to a set."""
    listed = ", ".join(str(member) for member in members)
    return f"add element inet {table} {name} {{ {listed} }}\n" if listed else ""
