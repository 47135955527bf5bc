"""`sbx desktop record`."""

import tempfile
from datetime import timedelta
from pathlib import Path

from sandbox_client import AsyncSandbox
from sandbox_client.cli.desktops.actions import require_target, write_content
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import format_duration
from sandbox_client.cli.output.failures import CliError
from sandbox_client.cli.output.times import format_relative
from sandbox_client.models import DesktopRecordingRead

_HEADS = ("ID", "STARTED", "DURATION", "SIZE", "MIB", "FPS", "END")


async def start(invocation: Invocation) -> None:
    async with invocation.sandbox() as sandbox:
        recording = await sandbox.desktop.start_recording(fps=invocation.args.fps)
    invocation.output.print_model_or(recording, recording.id)


async def stop(invocation: Invocation) -> None:
    async with invocation.sandbox() as sandbox:
        await sandbox.desktop.stop_recording()
        recordings = await sandbox.desktop.list_recordings()
    if recordings:
        invocation.output.print_model_or(recordings[-1], recordings[-1].id)


async def list_(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.sandbox() as sandbox:
        recordings = await sandbox.desktop.list_recordings()
    if output.as_json:
        for recording in recordings:
            output.print_model(recording)
    elif output.is_quiet:
        for recording in recordings:
            output.print(recording.id)
    else:
        output.print_table(_HEADS, [_row(recording) for recording in recordings])


async def get(invocation: Invocation) -> None:
    args = invocation.args
    require_target(args.output)
    async with invocation.sandbox() as sandbox:
        recording_id = args.recording or await _latest(sandbox)
        if args.at is not None:
            frame = await sandbox.desktop.frame(recording_id, args.at)
            await write_content(args.output, frame)
        elif args.output is not None and str(args.output) != "-":
            await sandbox.desktop.read_recording(recording_id, to=args.output)
        else:
            with tempfile.TemporaryDirectory() as directory:
                file = Path(directory) / "recording.mp4"
                await sandbox.desktop.read_recording(recording_id, to=file)
                await write_content(None, file.read_bytes())


async def rm(invocation: Invocation) -> None:
    async with invocation.sandbox() as sandbox:
        for recording_id in invocation.args.recordings:
            await sandbox.desktop.delete_recording(recording_id)
            invocation.output.print(recording_id)


async def _latest(sandbox: AsyncSandbox) -> str:
    recordings = await sandbox.desktop.list_recordings()
    if not recordings:
        raise CliError(
            f"The desktop of {sandbox.id} has no recording.",
            advice="Start one with `sbx desktop record start`.",
        )
    return recordings[-1].id


def _row(recording: DesktopRecordingRead) -> tuple[str, ...]:
    return (
        recording.id,
        format_relative(recording.started_at),
        format_duration(timedelta(seconds=recording.duration_s)),
        f"{recording.width}x{recording.height}",
        f"{recording.bytes / 2**20:.1f}",
        str(recording.fps),
        recording.end_reason or "goes on",
    )
