"""Descriptions are the texts below fields, and no source is read before one is asked for."""

from __future__ import annotations

from builders import run_python
from tfscaling.files.descriptions import descriptions


class Base:
    own: int
    """Of the
    base."""
    common: int
    """Also of the base."""
    plain: int


class Derived(Base):
    common: int
    """Of the derived class."""


class Other:
    own: int
    """Of another class."""
    more: int = 0
    """Only here."""


def test_the_nearest_class_with_a_text_describes_a_field() -> None:
    assert descriptions(Derived) == {"own": "Of the base.", "common": "Of the derived class."}
    assert descriptions(Derived, Other) == {**descriptions(Derived), "more": "Only here."}
    assert descriptions(int) == {}


def test_loading_the_stages_and_a_rank_reads_no_source() -> None:
    code = """
import tfscaling.stages.write_tables, tfscaling.train.rank
from tfscaling.files import descriptions
print(descriptions._field_descriptions.cache_info().currsize)
"""
    done = run_python(code)
    assert done.stdout.strip() == "0", done.stderr
