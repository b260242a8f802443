"""Change what some events of a pass give, and see what becomes of it; the network is not edited."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

from capsviz.wrapping.recorder import Event, name_of
from capsviz.wrapping.taps import Tap, TapPass


class ChangePass(TapPass):
    """A `TapPass` mode that gives `change(output)` in place of what these events give.

    Parameters
    ----------
    events  of a recording of the same call; each of their sites is altered whenever it is passed.
    change  tensor -> tensor of the same shape; its leading axis may be another number of images.
    """

    def __init__(
        self,
        network: nn.Module,
        taps: list[Tap],
        events: Iterable[Event],
        change: Callable[[Tensor], Tensor],
        until: str | None = None,
    ):
        events = list(events)
        super().__init__(network, taps, until=until)
        self.change, self.count = change, 0
        self.sites = {(event.site, event.name) for event in events}
        self.names_of_events = {event.name for event in events}

    def dispatch(self, function, args, kwargs):
        """Call the function; alter its result, if it is one to alter, before the taps read it."""
        if name_of(function) not in self.names_of_events:
            return super().dispatch(function, args, kwargs)
        site, name = self.site(self.frame()), name_of(function)
        if (site, name) not in self.sites:
            return super().dispatch(function, args, kwargs)

        def changed(*args, **kwargs):
            self.count += 1
            return self.change(function(*args, **kwargs))

        changed.__name__ = name
        return super().dispatch(changed, args, kwargs)
