import subprocess


def tmux(sockets, *arguments):
    """Do what a person does who has joined."""
    return subprocess.run(
        ["tmux", "-L", "sandbox", *arguments],
        env={"TMUX_TMPDIR": str(sockets), "PATH": "/usr/bin:/bin", "TERM": "xterm"},
        capture_output=True,
        text=True,
        check=False,
    )
