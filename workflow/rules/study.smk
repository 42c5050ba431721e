"""The configuration and the planned runs as files, and rounds of further runs."""


rule write_config:
    """Write the validated configuration, which the stages read."""
    input:
        check_start,  # no file
    output:
        config=report(
            f"{DETAILS}/config.json",
            category="Configuration",
            caption="../report/config.rst",
            labels={"study": CONFIG.study},
        ),
        stamp=stamp_of("config", CONFIG_TEXT.encode()),
    log:
        f"{LOGS}/write_config.log",
    localrule: True
    run:
        atomic.write_text(Path(output.config), CONFIG_TEXT)
        renew_stamp(output.stamp)


rule write_manifest:
    """Write the manifest of the planned runs, which the tables compare with the records."""
    input:
        check_start,  # no file
    output:
        manifest=f"{DETAILS}/manifest.json",
        stamp=stamp_of("manifest", MANIFEST.encode()),
    log:
        f"{LOGS}/write_manifest.log",
    localrule: True
    run:
        MANIFEST.write(Path(output.manifest))
        renew_stamp(output.stamp)


# In a module these have the module's `prefix`, which Snakemake sets before outputs, as here, but not
# before other texts: `{prefix}results/{study}` and `{prefix}results`.
STUDY = os.path.dirname(os.path.dirname(rules.write_manifest.output.manifest))
ROOT = os.path.dirname(STUDY)
JOBS = SweepJobs(workflow, RUNS, ROOT)
#: Runs of searches that failed too often: their points are eliminated.
ELIMINATED = (
    retries.find_given_up_runs(MANIFEST, Path(ROOT, "runs")) if MANIFEST.searches else frozenset()
)
OUTCOME = SweepOutcome(Path(STUDY))


checkpoint assess_repeats:
    """Decide which runs of searches and larger batches this round makes."""
    input:
        check_budget,  # no file
        manifest=f"{DETAILS}/manifest.json",
        manifest_stamp=rules.write_manifest.output.stamp,
        records=lambda w: records_after_round(int(w.round) - 1),
        previous=lambda w: (
            f"{DETAILS}/repeats/round={int(w.round) - 1}.json" if w.round != "1" else []
        ),
    output:
        runs=f"{DETAILS}/repeats/round={{round}}.json",
    log:
        f"{LOGS}/assess_repeats/round={{round}}.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, ancestor=2),
    message:  # Snakemake would list all input files
        "round {wildcards.round}: which runs of searches and larger batches follow"
    shell:
        strict_shell(r"""
        python3 "$SCRIPTS/tfscaling" assess-repeats --study {params.study:q} --round {wildcards.round} \
            >{log:q} 2>&1
        """)
