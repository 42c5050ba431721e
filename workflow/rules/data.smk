"""Datasets: each is fetched once, verified by its published checksum, and prepared as a file."""


rule prepare_dataset:
    """Fetch one dataset, verify it, and write the file that every rank reads."""
    input:
        check_start,  # no file
    output:
        arrays="results/datasets/{dataset}.npz",
        provenance="results/datasets/{dataset}.json",
    log:
        "results/logs/prepare_dataset/{dataset}.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        # of a custom function, else of a built-in dataset
        dataset=lambda w: PREPARED[w.dataset].dataset if w.dataset in PREPARED else w.dataset,
        parameters=parameters_of_dataset,
        path=lambda w: (copy := CONFIG.datasets.get(w.dataset)) and copy.path or [],
        code=code_of_dataset,
        version=2,  # of the file format: files of an older version are prepared again
        # other data under the same name is fetched again
        checksum=lambda w: DATASETS[w.dataset].sha256 if w.dataset in DATASETS else None,
    shell:
        strict_shell(r"""
        python3 "$SCRIPTS/prepare_dataset.py" \
            --dataset {params.dataset:q} \
            --parameters {params.parameters:q} \
            --path {params.path:q} \
            --output {output.arrays:q} \
            --provenance {output.provenance:q} \
            >{log:q} 2>&1
        """)


rule prepare_datasets:
    """Prepare all datasets of the configuration, such as for nodes without internet."""
    input:
        expand("results/datasets/{dataset}.npz", dataset=PREPARED),
    localrule: True
