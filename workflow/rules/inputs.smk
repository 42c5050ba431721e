"""Input and parameter functions of the rules."""


def refuse_beside_another():
    """Raise WorkflowError if another snakemake has the lock of this folder.

    To be called before Snakemake takes its lock. When it releases the lock, it removes all locks,
    so that a sweep which runs would have none.
    """
    is_executing = workflow.execution_settings is not None and not workflow.output_settings.dryrun
    if is_executing and workflow.execution_settings.lock and any(Path(LOCKS).glob("*.lock")):
        raise WorkflowError(
            f"another snakemake works in this folder, or was killed here ({LOCKS}): wait for it; if "
            "none runs, add --unlock once. make partial shows what has finished"
        )


def refuse_options():
    """Raise WorkflowError if options, or a module, change what runs are.

    Some are only known now: groups, and rules that a module has changed after this file was read.
    """
    train, given = workflow.get_rule(TRAIN), workflow.resource_settings.overwrite_resources
    problems = [*unsupported_options.refusals(workflow, TRAIN)]
    problems += [
        unsupported_options.overridden_resources(train, RESOURCES, given.get(TRAIN) or {})
    ]
    if any(problems):
        raise WorkflowError("\n".join(filter(None, problems)))


def limit_runs_on_this_machine():
    """Allow one training run at a time unless --resources training_runs=N allows more.

    Two would share this machine's cores and disturb both measurements.
    """
    if workflow.local_exec and "training_runs" not in workflow.global_resources:
        workflow.register_resource("training_runs", 1)


@functools.cache
def settle_once():
    refuse_options()
    limit_runs_on_this_machine()
    refuse_beside_another()
    UNREADABLE.extend(RERUNS.restore_records())
    contents = {"config.json": CONFIG_TEXT.encode(), "manifest.json": MANIFEST.encode()}
    JOBS.settle(RERUNS, {f"{STUDY}/details/{name}": content for name, content in contents.items()})


def alone(wildcards):
    """No file. Raises WorkflowError while another snakemake runs, unless --nolock is given."""
    if workflow.is_main_process:
        refuse_beside_another()
    return []


def plan_apart(wildcards):
    """No file. Write what is planned where no sweep reads it; take no lock during a sweep."""
    if not workflow.is_main_process or workflow.execution_settings is None:
        return []
    refuse_options()
    if workflow.execution_settings.lock and any(Path(LOCKS).glob("*.lock")):
        sys.stdout.flush()
        sys.stderr.flush()
        # Snakemake has no other way to give up its lock once it has read its command line
        os.execv(sys.executable, [sys.executable, "-m", "snakemake", "--nolock", *sys.argv[1:]])
    if not workflow.output_settings.dryrun:
        details = Path(STUDY, PLANNED, "details")
        details.mkdir(parents=True, exist_ok=True)
        atomic.write_text(details / "config.json", CONFIG_TEXT)
        MANIFEST.write(details / "manifest.json")
    return []


def settle(wildcards):
    """No file. Before Snakemake decides which jobs run, once: see `SweepJobs.settle`.

    Params would not do: copied results lack Snakemake's memory of them.
    """
    if workflow.is_main_process:
        settle_once()
    return []


def records_of_runs(wildcards):
    """The records of all runs, with the conditional runs that the rounds ask for."""
    number = 0
    if any(run.is_conditional for run in RUNS.values()):
        number = 1
        while round_of_repeats(number)["added"]:
            number += 1
    return records_after_round(number)


def records_after_round(number):
    """The records of the runs of every point and of the conditional runs up to this round."""
    extra = set(round_of_repeats(number)["runs"]) if number else set()
    wanted = (path for path, run in RUNS.items() if not run.is_conditional or path in extra)
    return [
        f"results/runs/{path}/run.json"
        for path in wanted
        if CONFIG.is_selected(RUNS[path].spec.point.platform) and path not in ELIMINATED
    ]


def round_of_repeats(number):
    """The decisions of round `number`; Snakemake runs the rounds that are missing."""
    return json.loads(Path(checkpoints.assess_repeats.get(round=number).output.runs).read_text())


def parameters_of_dataset(wildcards):
    """The function's parameters as JSON."""
    spec = PREPARED.get(wildcards.dataset)
    given = variants.data_parameters(spec.dataset, spec.recipe) if spec else {}
    return msgspec.json.encode(given).decode()


def conclusions_of_two_sweeps(wildcards):
    """The conclusions, if the configuration names another study."""
    if CONFIG.compare_with is None:
        raise WorkflowError("compare_with names no other study: there is nothing to compare with")
    return rules.compare.output.conclusions


def preview(jobs):
    """The lines of a dry-run of these jobs."""
    runs_dir = Path(ROOT, "runs")
    runs = {JOBS.record(path): run for path, run in RUNS.items()}
    change_of = functools.partial(run_states.change_of, runs_dir=runs_dir)
    return DryRun(CONFIG, MANIFEST, runs, runs_dir, change_of).lines(jobs)


def say(lines):
    """Print lines by Snakemake's log; the plugin prints them as they are."""
    for line in lines:
        logger.info(line, extra={"sweep": CONSOLE})


def begin_console():
    """Say what is to do, and what is missing to follow it."""
    CONSOLE.is_remote = not workflow.local_exec
    CONSOLE.gives_up = START.follows_jobs
    CONSOLE.retries = workflow.execution_settings.retries
    said = CONSOLE.begin(JOBS.specs, JOBS.records_to_do(), JOBS.may_repeat())
    if said and "sweep" not in workflow.output_settings.log_handler_settings:
        said += "; to follow its runs, add --logger sweep, which make setup installs"
    say([said] if said else [])
