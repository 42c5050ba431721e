"""How many cases are drawn: few and always the same ones in `make test`, many in `make fuzz`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_ALIKE = settings(
    deadline=None, database=None, suppress_health_check=[*HealthCheck], print_blob=True
)
settings.register_profile("few", _ALIKE, max_examples=70, derandomize=True)
settings.register_profile("many", _ALIKE, max_examples=3000)
settings.load_profile("few")
