"""The box of all plugins, as the settings want it and this machine has it; and what is told of it."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from ductile_gateway.plugins.box import boundary, reach
from ductile_gateway.plugins.box.boundary import Boundary, NoSuchBoundary
from ductile_gateway.plugins.box.box import Box
from ductile_gateway.plugins.box.limits import Limits
from ductile_gateway.settings import PluginSettings
from groundwork.service.errors import Misconfigured
from schemas.gateway_status import Finding

REMEDY = "a kernel with landlock, bubblewrap, or run_as keep them from it: docs/SECURITY.md, plugins"


def box_of(settings: PluginSettings, environment: Mapping[str, str]) -> Box:
    """`environment`: what plugins see; the paths in the variables that the settings name are in reach. Raises
    Misconfigured."""
    passed_on = reach.named(environment.get(name) for name in settings.environment)
    return Box(
        Limits(**settings.limits.model_dump()),
        boundary_of(settings),
        reach.drawn(
            read=chain(reach.of_programs(environment), _absolute(settings.read)),
            write=chain(passed_on, _absolute(settings.write)),
            closed=_absolute(settings.closed),
        ),
    )


def boundary_of(settings: PluginSettings) -> Boundary:
    """Raises Misconfigured where what is asked for is not to be had."""
    try:
        return boundary.found(settings.boundary, settings.run_as)
    except NoSuchBoundary as error:
        raise Misconfigured(f"gateway.plugins: {error}") from None


def look_at_boundary(found: Boundary) -> Sequence[Finding]:
    """What holds plugins, for doctor."""
    if found.is_closed:
        return [Finding(name="plugins", mark="ok", text=found.told())]
    text = f"{found.told()}: the stores and settings of the services are in their reach"
    return [Finding(name="plugins", mark="warning", text=text, remedy=REMEDY)]


def _absolute(paths: Sequence[Path]) -> Sequence[Path]:
    return [path.expanduser().absolute() for path in paths]
