"""Tooltips of the points of a plot, as one artist of matplotlib."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

#: Diameter of the invisible circle around a point that shows its tooltip, in points.
_DIAMETER = 16.0


@functools.cache
def tooltips_class() -> Any:
    """Return the class of artists that are tooltips of points.

    The class is defined in a cached function, because matplotlib is imported late.
    """
    from matplotlib.artist import Artist
    from matplotlib.backend_bases import RendererBase
    from matplotlib.markers import MarkerStyle
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D, IdentityTransform

    class Tooltips(Artist):
        """Invisible circles around points, each a group of the SVG with a separate identifier.

        One artist has all points of a line, and is excluded from the layout. Points that are not
        finite have no circle. Coordinates are the data of the axes that get the artist.

        Args:
            xs: x values of the points, of shape (points,).
            ys: y values of the points, of shape (points,).
            gids: Identifier of each point's group.
        """

        zorder = 9

        def __init__(self, xs: np.ndarray, ys: np.ndarray, gids: Sequence[str]) -> None:
            super().__init__()
            self.set_in_layout(False)
            points = np.column_stack([xs, ys])
            is_finite = np.isfinite(points).all(axis=1)
            self._points = points[is_finite]
            self._gids = [gid for gid, finite in zip(gids, is_finite, strict=True) if finite]

        def draw(self, renderer: RendererBase) -> None:
            """Draw the circles into a group with the identifier of the artist."""
            if not self.get_visible():
                return
            circle = MarkerStyle("o")
            size = np.asarray(renderer.points_to_pixels(_DIAMETER), float).item()
            shape = circle.get_transform() + Affine2D().scale(size)
            context = renderer.new_gc()
            context.set_alpha(0.0)
            renderer.open_group("tooltips", self.get_gid())
            places = self.get_transform().transform(self._points)
            for place, gid in zip(places, self._gids, strict=True):
                renderer.open_group("tooltip", gid)
                renderer.draw_markers(
                    context, circle.get_path(), shape, Path([place]), IdentityTransform(), (0, 0, 0)
                )
                renderer.close_group("tooltip")
            renderer.close_group("tooltips")
            context.restore()

    return Tooltips
