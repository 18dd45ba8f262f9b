"""Loads the models of a command and shows the progress on its view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shepherd.cli import logs

if TYPE_CHECKING:
    from shepherd.app.app import App
    from shepherd.cli.terminal.view import View
    from shepherd.tools.base import Person


async def load_models(app: App, view: View, *, person: Person | None = None, patient: bool = False) -> None:
    """Load all models, with a progress bar on a terminal; `person` and `patient` as for `App.load`.

    Raises: as `App.load`.
    """
    with logs.above(view.screen):
        try:
            await app.load(view.show_loading, person=person, patient=patient)
        finally:
            view.hide_loading()
