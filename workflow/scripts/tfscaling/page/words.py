"""Texts of the page from words.toml: glossary, topics, statuses, formulae and colours."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import RULE
from tfscaling.study.config_types import Question

_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
#: The terms of the page by their origin: terms of this project, words of the field. `make schemas`
#: writes them to docs/glossary.md, too.
GLOSSARY: Mapping[str, Mapping[str, str]] = {
    origin: {
        word: text.format(
            confidence=CONFIDENCE,
            error=1 - CONFIDENCE,
            indifference=Question().indifference,
            runs=RUNS_FOR_INTERVAL,
            rule=RULE,
        )
        for word, text in texts.items()
    }
    for origin, texts in _WORDS["glossary"].items()
}
#: Topic of findings → its heading; the name of the quality follows a heading that ends in a space.
TOPICS: Mapping[str, str] = _WORDS["topics"]
STATUSES: Mapping[str, str] = _WORDS["statuses"]
#: Metric → its formula, for metrics that the page explains by one.
FORMULAE: Mapping[str, str] = _WORDS["by_formulae"]
#: Word → its colour, for words that must not be overlooked; "ok" is what is expected.
TONES = {word: tone for tone, words in _WORDS["tones"].items() for word in words}
