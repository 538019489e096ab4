"""The project of an open warehouse as it is now."""

from __future__ import annotations

from headgate.config.settings import Project


class LiveProject:
    """The project file's settings with those that were changed since; who needs one asks for it when it is needed.

    The owner of the warehouse's settings (`scheduling/tuning`) changes it, everybody else reads.
    """

    def __init__(self, project: Project) -> None:
        self.current = project
