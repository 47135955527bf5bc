"""The subcommands `sbx task`, `sbx repo` and `sbx forge`. Standard library only, to keep the start fast."""

import argparse
from pathlib import Path

from sandbox_client.cli.arguments import ENV, Verbs, add_everywhere, add_verb, count, duration

AGENTS = "claude codex copilot gemini opencode".split()
KINDS = "github gitlab forgejo git".split()
PULL_REQUESTS = "draft ready none".split()
STATES = "queued in_progress waiting_for_user idle completed failed timed_out cancelled".split()

_UNKNOWN_TO_SBX = 125  # as of docker: what became of the task is unknown
_TASK = "id of the task, or its last characters"


def add_task_verbs(verbs: Verbs, *, is_named: bool) -> None:
    does = "have an agent work on a repository, from an issue to a pull request"
    tasks = add_group(verbs, "task", does, "TASK_COMMAND")
    if not is_named:
        return
    for add in (
        _run,
        _list,
        _show,
        _watch,
        _attempts,
        _diff,
        _overlaps,
        _message,
        _cancel,
        _choose,
        _approve,
        _retry,
    ):
        add(tasks)


def add_repository_verbs(verbs: Verbs, *, is_named: bool) -> None:
    does = "manage the repositories that tasks work on"
    repositories = add_group(verbs, "repo", does, "REPO_COMMAND")
    if not is_named:
        return
    for add in (_add_repository, _list_repositories, _show_repository, _set_repository):
        add(repositories)
    removed = add_verb(
        repositories, "rm", "remove repositories from the server", "repositories.settings:rm"
    )
    removed.add_argument("repositories", metavar="REPO", nargs="+")


def add_forge_verbs(verbs: Verbs, *, is_named: bool) -> None:
    does = "manage access to GitHub, GitLab, Forgejo and git servers"
    forges = add_group(verbs, "forge", does, "FORGE_COMMAND")
    if not is_named:
        return
    _set_forge(forges)
    add_verb(forges, "list", "list forges; with -q only their names", "repositories.forges:list_")
    checked = add_verb(
        forges, "check", "ask a forge what the credential may do", "repositories.forges:check"
    )
    checked.add_argument("forge", metavar="FORGE")
    checked.add_argument(
        "--repository", metavar="OWNER/REPO", help="check the permissions in this repository"
    )
    removed = add_verb(
        forges, "rm", "delete forges and their credentials", "repositories.forges:rm"
    )
    removed.add_argument("forges", metavar="FORGE", nargs="+")


def add_group(verbs: Verbs, name: str, does: str, metavar: str) -> Verbs:
    parser = verbs.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}.", allow_abbrev=False
    )
    add_everywhere(parser, default=argparse.SUPPRESS)
    return parser.add_subparsers(metavar=metavar, required=True, dest="subverb")


def _run(tasks: Verbs) -> None:
    does = "create a task and follow it until its pull request is open"
    parser = add_verb(tasks, "run", does, "tasks.run:run", fails_with=_UNKNOWN_TO_SBX)
    parser.add_argument("repository", metavar="REPO", help="OWNER/REPO or id")
    parser.add_argument(
        "instructions", metavar="TEXT", nargs="?", help="what is to be done; - reads stdin"
    )
    parser.add_argument("--issue", type=count, metavar="N", help="issue to work on")
    parser.add_argument("--title", help="title (default: the issue's, or the first line of TEXT)")
    parser.add_argument("--base", metavar="BRANCH", help="branch to work from")
    worker = parser.add_mutually_exclusive_group()
    worker.add_argument("--agent", choices=AGENTS, help="agent (default: the repository's)")
    worker.add_argument("--command", metavar="COMMAND", help="shell command instead of an agent")
    worker.add_argument(
        "--attempt",
        action="append",
        default=[],
        dest="each_attempt",
        metavar="AGENT[:MODEL]",
        help="agent of one of several attempts, of which the best is published (repeatable)",
    )
    parser.add_argument(
        "--attempts", type=count, metavar="N", help="have N agents work side by side (2 to 8)"
    )
    parser.add_argument(
        "--choose", action="store_true", help="wait until you choose among the attempts"
    )
    parser.add_argument("--model", help="model of the agent")
    parser.add_argument(
        "--pull-request", choices=PULL_REQUESTS, help="default: the repository's setting"
    )
    parser.add_argument("--budget-usd", type=float, metavar="USD", help="cost limit")
    parser.add_argument("--deadline", type=duration, metavar="DURATION", help="time limit")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "-d", "--detach", action="store_true", help="print the task's id and do not follow it"
    )
    _add_wait(mode)
    _add_until_end(parser)


def _list(tasks: Verbs) -> None:
    parser = add_verb(
        tasks, "list", "list open tasks; with -q only their ids", "tasks.listing:list_"
    )
    parser.add_argument("-a", "--all", action="store_true", help="include tasks that have ended")
    parser.add_argument("--repository", metavar="REPO", help="only tasks of this repository")
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        choices=STATES,
        help="only tasks in this state (repeatable)",
    )


def _show(tasks: Verbs) -> None:
    _add_task(add_verb(tasks, "show", "show the details and runs of a task", "tasks.listing:show"))


def _watch(tasks: Verbs) -> None:
    does = "follow a task until its pull request is open, it waits for you, or it has ended"
    parser = add_verb(tasks, "watch", does, "tasks.run:watch", fails_with=_UNKNOWN_TO_SBX)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "-n",
        "--tail",
        type=count,
        default=20,
        metavar="N",
        help="start with the last N entries (default: 20)",
    )
    amount.add_argument("--from-start", action="store_true", help="start with the oldest entry")
    _add_wait(parser)
    _add_until_end(parser)
    _add_task(parser)


def _diff(tasks: Verbs) -> None:
    does = "show what a task has changed; its sandbox may be gone"
    parser = add_verb(tasks, "diff", does, "tasks.diff:diff")
    points = "base, head, published, run:N, save:N or attempt:N"
    parser.add_argument(
        "--from", dest="old", default="base", metavar="POINT", help=f"{points} (default: base)"
    )
    parser.add_argument("--to", default="head", metavar="POINT", help="the same (default: head)")
    parser.add_argument("--path", help="only this file or directory")
    parser.add_argument("--stat", action="store_true", help="print only the names of the files")
    parser.add_argument("--no-pager", action="store_true", help="do not start a pager")
    _add_task(parser)


def _attempts(tasks: Verbs) -> None:
    does = "list the attempts at a task, what came of each, and which one was chosen"
    _add_task(add_verb(tasks, "attempts", does, "tasks.attempts:list_attempts"))


def _overlaps(tasks: Verbs) -> None:
    does = "show which open tasks would conflict, or have made the same changes"
    parser = add_verb(tasks, "overlaps", does, "tasks.overlaps:overlaps")
    parser.add_argument("--repository", metavar="REPO", help="only tasks of this repository")


def _message(tasks: Verbs) -> None:
    does = "tell the agent something, or answer its question"
    parser = add_verb(tasks, "message", does, "tasks.requests:message")
    parser.add_argument(
        "--interrupt", action="store_true", help="interrupt the current run, and tell it at once"
    )
    _add_follow(parser)
    _add_task(parser)
    parser.add_argument("text", metavar="TEXT", help="- reads stdin")


def _cancel(tasks: Verbs) -> None:
    does = "cancel tasks; their work is saved and an open pull request stays open"
    parser = add_verb(tasks, "cancel", does, "tasks.requests:cancel")
    parser.add_argument("tasks", metavar="TASK", nargs="+", help=_TASK)


def _choose(tasks: Verbs) -> None:
    does = "choose an attempt instead of the server; the task goes on with it"
    parser = add_verb(tasks, "choose", does, "tasks.requests:choose")
    _add_follow(parser)
    _add_task(parser)
    parser.add_argument("number", type=count, metavar="NUMBER", help="see sbx task attempts")


def _approve(tasks: Verbs) -> None:
    does = "publish work that the server refused to publish"
    parser = add_verb(tasks, "approve", does, "tasks.requests:approve")
    parser.add_argument("--head", metavar="SHA", help="approve this commit only")
    _add_follow(parser)
    _add_task(parser)


def _retry(tasks: Verbs) -> None:
    does = "go on with a task that waits or has ended without success"
    parser = add_verb(tasks, "retry", does, "tasks.requests:retry")
    _add_follow(parser)
    _add_task(parser)


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help=_TASK)


def _add_wait(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--wait",
        type=duration,
        metavar="DURATION",
        help="follow it for at most this time, then exit with 124; it goes on",
    )


def _add_until_end(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--until-end",
        action="store_true",
        help="follow it during the review too, until it is merged, closed or has ended",
    )


def _add_follow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--follow", action="store_true", help="then follow the task, as `sbx task watch`"
    )
    parser.set_defaults(wait=None, until_end=False, tail=5)


def _add_repository(repositories: Verbs) -> None:
    does = "add a repository of a forge and print its id"
    parser = add_verb(repositories, "add", does, "repositories.settings:add")
    parser.add_argument("full_name", metavar="OWNER/REPO")
    parser.add_argument("--forge", metavar="FORGE", help="forge (default: the only one)")
    _add_settings(parser)


def _list_repositories(repositories: Verbs) -> None:
    does = "list repositories; with -q only their names"
    add_verb(repositories, "list", does, "repositories.settings:list_")


def _show_repository(repositories: Verbs) -> None:
    parser = add_verb(
        repositories, "show", "show a repository and its settings", "repositories.settings:show"
    )
    parser.add_argument("repository", metavar="REPO", help="OWNER/REPO or id")


def _set_repository(repositories: Verbs) -> None:
    does = "change settings of a repository; other settings stay as they are"
    parser = add_verb(repositories, "set", does, "repositories.settings:set_")
    parser.add_argument("repository", metavar="REPO", help="OWNER/REPO or id")
    _add_settings(parser)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--template", metavar="TEMPLATE", help="template of the sandboxes")
    add("--setup", metavar="COMMAND", help="shell command to run after the checkout")
    add("--checks", metavar="COMMAND", help="shell command that must succeed before publishing")
    add("--agent", choices=AGENTS, help="agent that works on tasks")
    add("--agent-command", metavar="COMMAND", help="shell command instead of an agent")
    add("--model", help="model of the agent")
    add(
        "--settings",
        type=Path,
        metavar="FILE",
        help="JSON object of settings, as of the API; - reads stdin",
    )
    add("-e", "--env", **ENV)


def _set_forge(forges: Verbs) -> None:
    does = "create or replace a forge; secrets that are not given keep their stored values"
    parser = add_verb(forges, "set", does, "repositories.forges:set_")
    add = parser.add_argument
    add("forge", metavar="FORGE", help="name of your choice")
    add("--kind", choices=KINDS, required=True)
    add("--api-url", metavar="URL", help="URL of the API (default: the public service)")
    add("--git-url", metavar="URL", help="URL below which the repositories are")
    _add_secret(parser, "token", "access token, or password of a git server")
    add("--app-id", metavar="ID", help="id or client id of a GitHub App")
    add(
        "--private-key-file",
        type=Path,
        metavar="FILE",
        help="private key of the App, in PEM; - reads stdin",
    )
    _add_secret(parser, "webhook-secret", "secret of webhook deliveries")
    add("--git-only", action="store_true", help="the token is for git only, as a deploy token")
    add("--git-username", metavar="USER", help="user name for git")


def _add_secret(parser: argparse.ArgumentParser, name: str, what: str) -> None:
    """Take a secret from a file, stdin or a variable: arguments are visible to all users of a machine."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        f"--{name}-file", type=Path, metavar="FILE", help=f"file with the {what}; - reads stdin"
    )
    source.add_argument(
        f"--{name}-env", metavar="VARIABLE", help=f"environment variable with the {what}"
    )
