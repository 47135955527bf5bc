from datetime import timedelta

from sandbox_server.domain.errors.kinds import (
    Conflict,
    InvalidRequest,
    LimitReached,
    NotFound,
    SandboxError,
)


class CommandNotFound(NotFound):
    code = "command-not-found"
    noun = "command"
    remediation = (
        "Records of commands are deleted with their sandbox, and some days after the command ended."
    )


class AgentRunNotFound(NotFound):
    code = "agent-run-not-found"
    noun = "run"
    remediation = (
        "Records of runs are deleted with their sandbox, and some days after the run ended."
    )


class CommandNotRunning(Conflict):
    code = "command-not-running"
    remediation = "Read the command's state. A command that has ended cannot be resumed."

    def __init__(self, state: str) -> None:
        super().__init__(f"The command is {state}: it accepts no input and no signals.")


class StdinClosed(Conflict):
    code = "stdin-closed"
    remediation = "Start the command with `stdin: true`, and close stdin only after the last input."

    def __init__(self) -> None:
        super().__init__("The command's stdin is closed.")


class CommandNotStarted(SandboxError):
    code = "command-not-started"
    remediation = "Check that the working directory and the user exist in the sandbox."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The command did not start: {reason}")


class CodeExecutionNotFound(NotFound):
    code = "code-execution-not-found"
    noun = "execution"
    remediation = "Records of executions are deleted with their sandbox, and some days after the execution ended."


class CodeResultNotFound(NotFound):
    code = "code-result-not-found"
    noun = "result"
    remediation = "Read the execution: `results` lists the formats of each result."


class CodeContextNotFound(NotFound):
    code = "code-context-not-found"
    noun = "context"
    remediation = "List the contexts of the sandbox, or create one."


class CodeRefused(InvalidRequest):
    code = "code-refused"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The code interpreter refused the request: {reason}")


class InterpreterBusy(LimitReached):
    code = "interpreter-busy"
    remediation = "Delete contexts that are no longer needed, or wait until executions have ended."

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The code interpreter is at its limit: {reason}",
            retry_after=timedelta(seconds=10),
        )


class TerminalNotFound(NotFound):
    code = "terminal-not-found"
    noun = "terminal"
    remediation = "Records of terminals are deleted with their sandbox, and some days after the terminal ended."


class ControlNotUnderstood(InvalidRequest):
    code = "control-not-understood"
    remediation = "Send input as binary messages and control messages as JSON with a `type`."

    def __init__(self, reason: str) -> None:
        super().__init__(f"Invalid control message: {reason}")
