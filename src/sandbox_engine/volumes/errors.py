from sandbox_engine.system.errors import EngineError


class VolumeNotFound(EngineError):
    """No volume has this id or name."""

    code = "volume_not_found"

    def __init__(self, reference: str) -> None:
        super().__init__(f"Volume '{reference}' not found")


class VolumePathNotFound(EngineError):
    """Nothing in the volume has this path."""

    code = "path_not_found"

    def __init__(self, path: str) -> None:
        super().__init__(f"Path '{path}' not found in the volume")


class VolumePathExists(EngineError):
    """Something in the volume has this path already."""

    code = "path_already_exists"

    def __init__(self, path: str) -> None:
        super().__init__(f"Path '{path}' already exists in the volume")


class VolumeFull(EngineError):
    """There is no room left, in the volume or on the machine."""

    code = "volume_full"

    def __init__(self, where: str = "in the volume") -> None:
        super().__init__(f"not enough disk space available {where}")
