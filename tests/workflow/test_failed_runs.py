"""A point that fails is shown as failed; the others finish, and only it runs again."""

from __future__ import annotations

import copy

from project import TINY, Project
from sweep import SWEEP

#: A dataset whose size is known only once it is prepared.
FEW = """
import numpy as np


def data():
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (740, 28, 28)).astype(np.uint8)
    labels = random.integers(0, 10, 740)
    return (images[:640], labels[:640]), (images[640:], labels[640:])
"""


def test_a_failed_point_is_a_row_with_its_reason_and_runs_again_alone(copied: Project) -> None:
    content = copy.deepcopy(SWEEP)
    # 640 examples are fewer than the global batch of two nodes
    (copied.folder / "few.py").write_text(FEW)
    bad = {**TINY, "dataset": "few:data", "per_replica_batch_size": 512}
    content["recipes"]["bad"] = bad
    content["grid"].append(
        {"platform": "laptop", "model": "mnist_cnn", "recipe": "bad", "nodes": [1, 2]}
    )
    copied.overlay(content)
    done = copied.snakemake(check=False)
    assert done.returncode != 0

    (failure,) = copied.failures()
    assert failure["axes"]["nodes"] == 2
    assert failure["cause"]["kind"] == "rank_failed"
    text = "ValueError: 640 training examples are fewer than the global batch of 1024"
    assert failure["cause"]["message"] == text
    assert any(text in line for line in failure["cause"]["last_lines"])

    # the tables of what has finished are there, and results/main/tables is as it was
    rows = copied.table("results/main/partial/tables/comparison.csv")
    shown = {(r["recipe"], r["nodes"]): r for r in rows if r["recipe"] == "bad"}
    assert shown["bad", "1"]["status"] == "ok"
    assert shown["bad", "2"]["status"] == "failed"
    assert text in shown["bad", "2"]["reason"]
    assert shown["bad", "2"]["speedup"] == ""
    assert sum(r["status"] == "ok" for r in rows) == 6
    markdown = (copied.folder / "results/main/partial/tables/comparison.md").read_text()
    assert text in markdown
    assert len(copied.table()) == 7

    # now that the data is there, its size is known before anything is submitted
    refused = copied.snakemake("--dry-run", check=False)
    assert refused.returncode != 0
    (line,) = [line for line in refused.stdout.splitlines() if " is not allowed; " in line]
    assert line.startswith('overlay.yaml: recipes.bad: {"per_replica_batch_size": 512} is not ')
    assert "with nodes 2, gpus_per_node 0 the global batch of 1024 examples exceeds" in line
    assert "the training examples of few:data, 640" in line
    content["grid"][-1]["nodes"] = [1]
    copied.overlay(content)
    copied.snakemake()
    assert [r["status"] for r in copied.table() if r["recipe"] == "bad"] == ["ok"]
