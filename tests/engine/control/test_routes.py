from collections.abc import Iterator
from importlib import import_module
from inspect import isasyncgenfunction, iscoroutinefunction
from pkgutil import iter_modules

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from sandbox_engine import control


def _routes() -> Iterator[APIRoute]:
    for module in iter_modules(control.__path__, f"{control.__name__}."):
        for router in vars(import_module(module.name)).values():
            if isinstance(router, APIRouter):
                yield from (route for route in router.routes if isinstance(route, APIRoute))


def _calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for one in dependant.dependencies:
        yield from _calls(one)


def test_routes__routes_and_their_dependencies_run_in_the_event_loop():
    """A plain function would cost each request a hop to a thread and back."""
    calls = {call for route in _routes() for call in _calls(route.dependant)}
    assert len(calls) > 50
    plain = [one for one in calls if not (iscoroutinefunction(one) or isasyncgenfunction(one))]
    assert plain == []
