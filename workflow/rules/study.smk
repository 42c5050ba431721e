"""The configuration and the planned runs as files, and batches of extra repeats."""

@functools.cache
def settle_once():
    contents = {"config.json": CONFIG_TEXT.encode(), "manifest.json": MANIFEST.encode()}
    JOBS.settle(RERUNS, {f"{STUDY}/{name}": content for name, content in contents.items()})


def settle(wildcards):
    """No file. Before Snakemake decides which jobs run, once: see `SweepJobs.settle`.

    Params would not do: results that were copied or merged lack Snakemake's memory of them.
    """
    settle_once()
    return []


rule write_config:
    """Write the validated configuration, for programs that need many of its keys."""
    input:
        settle,  # no file
    output:
        config=report(
            f"{RESULTS}/config.json",
            category="Configuration",
            caption="../report/config.rst",
            labels={"study": CONFIG.study},
        ),
    log:
        f"{RESULTS}/logs/write_config.log",
    localrule: True
    run:
        atomic.write_text(Path(output.config), CONFIG_TEXT)


rule write_manifest:
    """Write the run manifest, which the tables compare with the records."""
    input:
        settle,  # no file
    output:
        manifest=f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/write_manifest.log",
    localrule: True
    run:
        MANIFEST.write(Path(output.manifest))


# In a module these have the module's `prefix`, which Snakemake sets before outputs, as here, but not
# before other texts: `{prefix}results/{study}` and `{prefix}results`.
STUDY = os.path.dirname(rules.write_manifest.output.manifest)
ROOT = os.path.dirname(STUDY)
JOBS = SweepJobs(workflow, RUNS, BENCHMARKS, ROOT)
#: The snakemake of a job regenerates nothing.
RERUNS = Reruns(CONFIG, *((RUNS, BENCHMARKS) if workflow.is_main_process else ({}, {})), Path(ROOT))


def records_of_runs(wildcards):
    """The records of all runs, with the extra repeats that the rounds ask for."""
    number = 0
    if any(run.extra_repeat for run in RUNS.values()):
        number = 1
        while round_of_repeats(number)["added"]:
            number += 1
    return records_after_round(number)


def records_before_round(wildcards):
    """The records that round `wildcards.round` reads."""
    return records_after_round(int(wildcards.round) - 1)


def records_after_round(number):
    """The records of the runs of every point and of the extra repeats up to this round."""
    extra = set(round_of_repeats(number)["runs"]) if number else set()
    wanted = (path for path, run in RUNS.items() if not run.extra_repeat or path in extra)
    return [
        f"results/runs/{path}/run.json"
        for path in wanted
        if is_selected(RUNS[path].spec.point) and path not in eliminated()
    ]


@functools.cache
def eliminated():
    """The runs of searches that failed too often, whose points are eliminated."""
    if not MANIFEST.searches:
        return frozenset()
    from tfscaling.plan import lasting_failures

    return lasting_failures.given_up(MANIFEST, Path(ROOT, "runs"))


def round_of_repeats(number):
    """The decisions of round `number`; Snakemake runs the rounds that are missing."""
    return json.loads(Path(checkpoints.assess_repeats.get(round=number).output.runs).read_text())


def round_before(wildcards):
    """The file of the round before, none for the first."""
    number = int(wildcards.round) - 1
    return f"{RESULTS}/repeats/round={number}.json" if number else []


checkpoint assess_repeats:
    """Decide which points need extra repeats in this round."""
    input:
        manifest=f"{RESULTS}/manifest.json",
        records=records_before_round,
        previous=round_before,
    output:
        runs=f"{RESULTS}/repeats/round={{round}}.json",
    log:
        f"{RESULTS}/logs/assess_repeats/round={{round}}.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, parent=True),
    message:  # Snakemake would list all input files
        "round {wildcards.round}: which points need extra repeats"
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" assess-repeats --study {params.study:q} --round {wildcards.round} \
            >{log:q} 2>&1
        """
