from sandbox_server.domain.errors.kinds import Conflict, InvalidRequest, NotFound, SandboxError


class CommandNotFound(NotFound):
    code = "command-not-found"
    noun = "command"
    remediation = "Commands are removed with their sandbox, and a while after they have ended."


class AgentRunNotFound(NotFound):
    code = "agent-run-not-found"
    noun = "run"
    remediation = "Runs are removed with their sandbox, and a while after they have ended."


class CommandNotRunning(Conflict):
    code = "command-not-running"
    remediation = "Read its state; one that has ended cannot come back."

    def __init__(self, state: str) -> None:
        super().__init__(f"The command is {state}, and takes neither input nor signals.")


class StdinClosed(Conflict):
    code = "stdin-closed"
    remediation = "Start it with `stdin: true`, and close that only after all input."

    def __init__(self) -> None:
        super().__init__("The command's stdin was not left open, or has been closed since.")


class CommandNotStarted(SandboxError):
    code = "command-not-started"
    remediation = "See whether its directory and its user are there in the sandbox."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The command did not start: {reason}")


class TerminalNotFound(NotFound):
    code = "terminal-not-found"
    noun = "terminal"
    remediation = "Terminals are removed with their sandbox, and a while after they have ended."


class ControlNotUnderstood(InvalidRequest):
    code = "control-not-understood"
    remediation = "Send what is typed as binary messages, and control as JSON with a `type`."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The message is no control of a terminal: {reason}")
