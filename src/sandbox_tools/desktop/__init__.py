"""The desktop service: one HTTP and WebSocket server in front of the X and VNC server of a sandbox. docs/decisions/desktop.md says why.

    the sandbox's server ──► DesktopService (port 49990) ──► Display (size, pixels, input) ──► RfbConnection ──► Xvnc
    a person's browser ────► Viewer: RFB through a filter that withholds input ─────────────► RFB ────────────► Xvnc

Everything goes over Xvnc's own socket: input in order with the screenshot after it, without a process per action.
"""
