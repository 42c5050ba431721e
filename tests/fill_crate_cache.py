"""Fills the HTTP cache of roc-validator: fill_crate_cache.py CACHE, by the validator's Python.

The context of RO-Crate 1.1 is from the package rocrate, so that a validation needs no network.
"""

from __future__ import annotations

import io
import sys
from importlib.resources import files
from typing import Any

import requests
import requests_cache
import urllib3
from requests.adapters import HTTPAdapter

CONTEXT = "https://w3id.org/ro/crate/1.1/context"


class PackagedContext(HTTPAdapter):
    """Answers each request with the context."""

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        content = files("rocrate").joinpath("data/ro-crate.jsonld").read_bytes()
        answer = urllib3.HTTPResponse(
            io.BytesIO(content),
            {"Content-Type": "application/ld+json"},
            status=200,
            preload_content=False,
            request_url=request.url,
        )
        return self.build_response(request, answer)


session = requests_cache.CachedSession(sys.argv[1], backend="sqlite", expire_after=-1)
session.mount(CONTEXT, PackagedContext())
session.get(CONTEXT, headers={"Accept": "application/ld+json, application/json"})
