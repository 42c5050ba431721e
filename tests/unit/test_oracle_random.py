"""Random models by every strategy, against Keras's own `fit` on one device.

`make fuzz-models N=200 SEED=1` trains as many random models in all ways, `make test-full` six,
and two others on two replicas; `make test` two more on two replicas.
"""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import oracle_rank
import pytest
from oracle_cases import Case
from oracle_comparison import ALL_WAYS, DifferenceError, check, deviation, trained
from ranks import Found, RankFailedError

SEED = int(os.environ.get("SEED", "1"))
#: Random models on two replicas; the next ones, or the ones of `make fuzz-models`, in all ways.
ON_TWO_REPLICAS = [range(2, 4), pytest.param(range(2), marks=pytest.mark.full)]
IN_ALL_WAYS = range(int(os.environ["N"])) if "N" in os.environ else range(4, 10)
#: Likewise for each random model in all ways, on a busy machine.
MODEL_LIMIT_S = 375
#: Models that processes train before new ones follow: graphs of TensorFlow stay in memory.
MODELS_OF_PROCESS = 20
#: The largest deviation of a model in float32 that is equal in float64: its roundings have grown.
GROWN_MAX = 0.1
#: Name of a random model: the last one in the log of a process that failed is the cause.
MODEL_NAME = re.compile(r"model (\d+):")


def parts_around_failure(part: range, log: str) -> list[range]:
    """Return models to train after a failure: those before the cause, it alone, those after it."""
    if len(part) == 1:
        return []
    last = int([part.start, *MODEL_NAME.findall(log)][-1])
    around = range(part.start, last), range(last, last + 1), range(last + 1, part.stop)
    return [each for each in around if each]


class Comparison(NamedTuple):
    """What the random models of a test showed: the largest deviation of each way, problems."""

    compared: int
    deviations: dict[str, float]
    problems: list[str]


def check_in_float32(name: str, case: Case, ways: dict[str, list[Found]]) -> None:
    """Compare what rounds alike: `fit` with one replica, and all strategies on two replicas.

    A sum of two gradients does not depend on the order in which a strategy adds them. With several
    replicas, roundings grow: only large faults are found. Accuracies are compared in float64 only:
    where the two largest outputs of a model are equal but for rounding, its class is arbitrary.
    """
    case = replace(case, not_compared=(*case.not_compared, "accuracy"))
    for way, ranks in ways.items():
        assert deviation(ranks[0], ways["fit"][0], case) <= GROWN_MAX, f"{name}, {way}: float32"
    on_one, on_two = ({w: r for w, r in ways.items() if w.endswith(f" {n}")} for n in (1, 2))
    check(name, case, {"fit": ways["fit"], **on_one})
    check(name, case, {"fit": [next(iter(on_two.values()))[0]], **on_two})


def compare_random_models(
    folder: Path, numbers: range, words: str = f"drawn_models:cases:{SEED}", are_few: bool = False
) -> Comparison:
    """Compare models with `fit`, in all ways or, if they are few, in two ways on two replicas.

    A model that ends a process is a problem. It is trained again alone, and the others without it.
    A model in float32 that differs is trained again in float64, in which it must be equal: some
    optimizers and batch normalization make roundings large. A model in float16 must then equal
    copies by hand, whose gradients are sums of parts, too.
    """
    print(f"{words}: random models {numbers.start} to {numbers.stop - 1}")
    problems: list[str] = []
    deviations: dict[str, float] = {}
    cpu_s, compared = 0.0, 0
    parts = [numbers[n : n + MODELS_OF_PROCESS] for n in range(0, len(numbers), MODELS_OF_PROCESS)]
    differing: list[range] = []
    earlier: dict[str, tuple[Case, dict[str, list[Found]]]] = {}
    while parts or differing:
        are_exact = not parts
        part = (parts or differing).pop(0)
        own_words = f"{words}:{part.start}:{part.stop}:{int(are_few)}:{int(are_exact)}"
        place = folder / own_words.replace(":", "-")
        place.mkdir()
        try:
            found = trained(place, own_words, 2 if are_few else 4)
        except RankFailedError as error:
            problems.append(f"{own_words}: {error}")
            if not are_exact:
                parts[:0] = parts_around_failure(part, error.log)
            continue
        cases = dict(oracle_rank.cases_of(own_words))
        assert found.keys() == cases.keys()
        for name, case in cases.items():
            ways = {"fit", *(f"{way} 2" for way in case.strategies or ())}
            ways = ways if are_few else ALL_WAYS - {case.without_way}
            if case.is_by_hand:
                ways = ways - {"fit"} | {f"by hand {n}" for n in case.replicas}
            assert found[name].keys() == ways
            own_s = sum(rank["cpu_s"] for ranks in found[name].values() for rank in ranks)
            cpu_s += own_s
            try:
                of_ways = check(name, case, found[name])
                if name in earlier:
                    check_in_float32(name, *earlier[name])
            except AssertionError as error:
                print(f"not equal: {error}")
                if isinstance(error, DifferenceError) and not are_exact:
                    number = int(name.rpartition(" ")[2])
                    differing.append(range(number, number + 1))
                    if case.precision == "float32":
                        earlier[name] = case, found[name]
                else:
                    problems.append(str(error))
                continue
            compared += 1
            for way, value in of_ways.items():
                deviations[way] = max(value, deviations.get(way, 0.0))
            largest = max(of_ways.values())
            reference = ", from copies by hand" if case.is_by_hand else ""
            print(f"{name}, {case.precision}: deviation {largest:.1e}{reference}, {own_s:.0f} s")
    print("largest deviations:", {way: f"{value:.1e}" for way, value in deviations.items()})
    print(f"{compared} of {len(numbers)} models are equal, {cpu_s:.0f} s of CPU")
    return Comparison(compared, deviations, problems)


@pytest.mark.parametrize("numbers", ON_TWO_REPLICAS, ids=str)
def test_random_models_on_two_replicas_train_as_fit_does(tmp_path: Path, numbers: range) -> None:
    found = compare_random_models(tmp_path, numbers, are_few=True)
    assert (found.compared, found.problems) == (len(numbers), [])


@pytest.mark.full
@pytest.mark.timeout(MODEL_LIMIT_S * len(IN_ALL_WAYS))
def test_random_models_in_all_ways_train_as_fit_does(tmp_path: Path) -> None:
    found = compare_random_models(tmp_path, IN_ALL_WAYS)
    assert (found.compared, found.problems) == (len(IN_ALL_WAYS), [])


@pytest.mark.full
def test_an_overflow_of_whole_batches_alone_skips_no_update_of_several_replicas(
    tmp_path: Path,
) -> None:
    words = "drawn_models:overflow_of_whole_batches"
    (name, ways), *none = trained(tmp_path, words).items()
    assert not none
    case = dict(oracle_rank.cases_of(words))[name]
    check(name, case, ways)
    updates = {way: ranks[0]["updates"] for way, ranks in ways.items()}
    for way, made in updates.items():
        assert made == updates[f"by hand {way.rpartition(' ')[2]}"], way
    steps = case.steps_per_epoch
    assert updates["by hand 1"] != updates["by hand 2"]
    assert updates["by hand 4"] == [steps, 2 * steps]


def test_a_model_that_ended_a_process_is_trained_alone_and_all_others_without_it() -> None:
    first, count = random.randrange(100), random.randint(2, MODELS_OF_PROCESS)
    part = range(first, first + count)
    ended = random.choice(part)
    log = "".join(f"seed 7, model {n}: fit\n" for n in range(first, ended + 1))
    parts = parts_around_failure(part, log)
    assert [number for each in parts for number in each] == [*part]
    assert range(ended, ended + 1) in parts
    assert parts_around_failure(range(ended, ended + 1), log) == [], "it was alone already"
    assert parts_around_failure(part, "no model yet")[0] == range(first, first + 1)


@pytest.mark.full
def test_sums_of_parts_in_float16_are_those_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They differ from the gradient of the whole batch."""
    found = compare_random_models(tmp_path, range(127, 128), words="drawn_models:cases:1204")
    assert (found.compared, found.problems) == (1, [])
    assert "from copies by hand" in capsys.readouterr().out


@pytest.mark.full
def test_roundings_that_grow_are_absent_in_float64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three batch normalizations and Adam: losses of two replicas differ by 1 % in float32."""
    found = compare_random_models(tmp_path, range(168, 169), words="drawn_models:cases:1205")
    assert (found.compared, found.problems) == (1, [])
    assert "model 168, float64" in capsys.readouterr().out
