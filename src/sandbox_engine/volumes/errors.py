from sandbox_engine.system.errors import EngineError


class VolumeNotFound(EngineError):
    """There is no volume with this ID or name."""

    code = "volume_not_found"

    def __init__(self, reference: str) -> None:
        super().__init__(f"Volume '{reference}' not found")


class VolumePathNotFound(EngineError):
    """The path does not exist in the volume."""

    code = "path_not_found"

    def __init__(self, path: str) -> None:
        super().__init__(f"Path '{path}' not found in the volume")


class VolumePathExists(EngineError):
    """The path already exists in the volume."""

    code = "path_already_exists"

    def __init__(self, path: str) -> None:
        super().__init__(f"Path '{path}' already exists in the volume")


class VolumeFull(EngineError):
    """The volume or the machine is full."""

    code = "volume_full"

    def __init__(self, where: str = "in the volume") -> None:
        super().__init__(f"not enough disk space available {where}")
