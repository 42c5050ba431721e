"""The plan, the start of a sweep, and the lines that are printed while it runs."""


rule plan:
    """Write and print the plan: the runs that are still to do, with their cost."""
    input:
        plan_apart,  # no file
    log:
        f"{LOGS}/plan.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=lambda w: STUDY,
        submission=lambda w: msgspec.json.encode(START.submission).decode(),
    shell:
        strict_shell(r"""
        python3 "$SCRIPTS/tfscaling" plan --study {params.study:q} \
            <<<{params.submission:q} 2>&1 | tee {log:q}
        """)


START = SweepStart(CONFIG, MANIFEST, SOURCES, JOBS, INVOCATION.train_rule)
REQUESTS = RunRequests()
#: What attempts keep of records that Snakemake deletes on request, by the records' files.
KEPT_RECORDS = {}


onstart:
    if INVOCATION.is_main_process:
        restrict_umask()
        handle_signals_in_thread(START.stop_submissions, START.abandon_jobs)
    if INVOCATION.touches:
        say([JOBS.touch_message()])
    else:
        if JOBS.starts_runs():
            START.begin(logger)
        REQUESTS.accept()
        if INVOCATION.is_main_process:
            begin_console()


CONSOLE = SweepProgress(CONFIG.study, OUTCOME.lines, preview)


# The plugin shortens what follows. In a module the outer workflow owns the console.
if INVOCATION.is_main_process and not INVOCATION.is_module:
    say([""])
    if importlib.util.find_spec("snakemake_logger_plugin_sweep") is None:
        say(
            [
                "Not installed: the plugins in plugins/ (`make setup` installs them). Without them "
                "Snakemake prints its own lines, and only platforms with `launcher: local` are run."
            ]
        )
