"""What an app can read of its run without taking a step, in a context of either kind."""

from typing import Any

from tape.runs.driving.steps import RunSteps


class RunFacts:
    def __init__(self, steps: RunSteps) -> None:
        self._steps = steps

    @property
    def run_id(self) -> str:
        return self._steps.run.run_id

    @property
    def app_name(self) -> str:
        return self._steps.run.app_name

    @property
    def user_id(self) -> str:
        return self._steps.run.user_id

    @property
    def session_id(self) -> str:
        return self._steps.run.session_id

    @property
    def invocation_id(self) -> str:
        return self._steps.run.invocation_id

    @property
    def app_version(self) -> str:
        """The version of the app that started this run; it may be older than this code."""
        return self._steps.run.app_version

    @property
    def input(self) -> Any:
        return self._steps.log.input

    @property
    def is_replaying(self) -> bool:
        """Whether the next step is replayed from the journal."""
        return self._steps.log.is_replaying

    @property
    def is_cancelled(self) -> bool:
        """Whether the cancellation of this run was requested. Its next new effect is refused."""
        return self._steps.is_cancelled
