"""Loads the models of a command, with a progress bar where a terminal shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shepherd.cli import logs

if TYPE_CHECKING:
    from shepherd.app.app import App
    from shepherd.cli.terminal.view import View
    from shepherd.tools.base import Person


async def load(app: App, view: View, *, person: Person | None = None, patient: bool = False) -> None:
    """Load all models and show the progress in `view`; `person` and `patient` as for `App.load`.

    Raises: as `App.load`.
    """
    with logs.above(view.screen):
        try:
            await app.load(view.show_loading, person=person, patient=patient)
        finally:
            view.hide_loading()
