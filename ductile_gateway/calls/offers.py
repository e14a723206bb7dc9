"""What is on offer at the moment: the catalog, and the check of arguments that belongs to it. It may be replaced.

Other executors stand on the same bus: what they are asked for is theirs to answer.
"""

from collections.abc import Callable

from ductile_gateway.calls.asked import Asked
from ductile_gateway.ports import ArgumentCheck
from schemas import subjects
from schemas.catalog import Catalog, ToolCommand, ToolOffer


class Offers:
    """Nothing, until `replace`. `executor`: who offers it. `problems`: what is not on offer, and why."""

    def __init__(self, checks: Callable[[Catalog], ArgumentCheck], *, executor: str = subjects.SERVICE_GATEWAY) -> None:
        self._checks = checks
        self._executor = executor
        self.replace(Catalog(revision="", tools=()))

    def replace(self, catalog: Catalog, problems: tuple[str, ...] = ()) -> None:
        """From now on this is on offer. A call that was admitted before goes on as it was."""
        self._check = self._checks(catalog)
        self._by_name = {offer.name: offer for offer in catalog.tools}
        self._routes = frozenset(offer.route for offer in catalog.tools)
        self.catalog = catalog.model_copy(update={"executor": self._executor})
        self.problems = problems

    def serves(self, route: str) -> bool:
        """Whether a tool of that route is on offer."""
        return route in self._routes

    def is_ours(self, asked: Asked) -> bool:
        """Whether we have to answer: a request that names nobody is of whoever serves its route."""
        executor = asked.request.executor
        return self.serves(asked.route) if executor is None else executor == self._executor

    def find(self, name: str) -> ToolOffer | None:
        return self._by_name.get(name)

    def command(self, name: str, command: str) -> ToolCommand | None:
        offer = self.find(name)
        return next((one for one in offer.commands if one.name == command), None) if offer else None

    def flaw(self, asked: Asked) -> str | None:
        """What is wrong with the arguments; None also where there is no schema to check against."""
        return self._check.flaw(asked)


def difference(before: Catalog, now: Catalog) -> dict[str, list[str]]:
    """The names of the tools that are new, gone and changed."""
    old, new = ({offer.name: offer for offer in catalog.tools} for catalog in (before, now))
    changed = [name for name in old.keys() & new.keys() if old[name] != new[name]]
    return {"new": sorted(new.keys() - old.keys()), "gone": sorted(old.keys() - new.keys()), "changed": sorted(changed)}
