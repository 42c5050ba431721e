"""What is requested, as files: the configuration and the manifest.

INPUTS   the validated configuration and the grid that it expands to
OUTPUTS  results/{study}/config.json     every key with its value, defaults filled in
         results/{study}/manifest.json   every planned run with its parameters, every excluded
                                         point with its reason
         ROOT, STUDY   the folders results and results/{study} as Snakemake sees them
         JOBS          those of the study's runs and benchmarks
         RERUNS        what is made again although it is there

Both files are written anew whenever their content differs from that of the current configuration.
All tables depend on them, so they are current even if Snakemake's memory of params was lost.
"""


rule write_config:
    """Write the validated configuration, for programs that need many of its keys."""
    input:
        force_if_outdated("config.json", CONFIG_TEXT.encode),
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
        force_if_outdated("manifest.json", MANIFEST.encode),
    output:
        manifest=f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/write_manifest.log",
    localrule: True
    run:
        MANIFEST.write(Path(output.manifest))


# In a module with a `prefix`, which Snakemake sets before outputs but not before other texts, these
# have it too: what is named by them is in the same results as the outputs.
STUDY = os.path.dirname(rules.write_manifest.output.manifest)
ROOT = os.path.dirname(STUDY)
#: Runs and benchmarks as Snakemake's jobs.
JOBS = SweepJobs(workflow, RUNS, BENCHMARKS, ROOT)
#: The snakemake of a job makes nothing again.
PLANNED = (RUNS, BENCHMARKS) if workflow.is_main_process else ({}, {})
RERUNS = Reruns(CONFIG, *PLANNED, Path(ROOT))
