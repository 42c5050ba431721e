"""Input and parameter functions of the rules."""


def refuse_beside_another():
    """Raise WorkflowError if another snakemake has the lock of this folder.

    To be called before Snakemake takes its lock. When it releases the lock, it removes all locks,
    so that a sweep which runs would have none.
    """
    if INVOCATION.is_locked_by_another and not INVOCATION.is_dry_run:
        locks = invocation.LOCKS
        raise WorkflowError(
            f"another snakemake works in this folder, or was killed here ({locks}): wait for it; if "
            "none runs, add --unlock once. `snakemake partial --nolock …` shows what has finished"
        )


def refuse_read_only():
    """Raise WorkflowError if no file can be written to the results.

    To be called before the first file: Snakemake's own error would be of any file of the study.
    """
    folder = next(each for each in (Path(STUDY), *Path(STUDY).parents) if each.exists())
    if not os.access(folder, os.W_OK):
        raise WorkflowError(f"{folder}: cannot be written; work in a folder that can be written")


def refuse_options():
    """Raise WorkflowError if options, or a module, change what runs are.

    Some are only known now: groups, and rules that a module has changed after this file was read.
    """
    problems = [
        *INVOCATION.refused_options(),
        *INVOCATION.low_limits(requests_of_runs()),
        INVOCATION.describe_replaced_resources(RESOURCES),
    ]
    if any(problems):
        raise WorkflowError("\n".join(filter(None, problems)))


def limit_runs_on_this_machine():
    """Allow one training run at a time unless --resources training_runs=N allows more.

    Two would share this machine's cores and disturb both measurements.
    """
    if INVOCATION.is_local:
        INVOCATION.limit_resource("training_runs", 1)


@functools.cache
def runs_to_do():
    """Return which runs are to do; call this when Snakemake builds its graph of jobs."""
    forced = JOBS.forced_runs(START.rule)
    return RunsToDo(CONFIG, TO_MAKE, Path(ROOT, "runs"), forced)


def restrict_umask():
    """Withhold the rights of `readable_by` from all files that this process makes."""
    os.umask(os.umask(0o077) | UMASK)


@functools.cache
def check_start_once():
    """Check that this start may begin, force repeated runs, restore records; once in a process."""
    restrict_umask()
    refuse_options()
    limit_runs_on_this_machine()
    refuse_beside_another()
    # what the user requests by `rerun: stale` or by name, and data of older code
    JOBS.force(map(JOBS.record_file, runs_to_do().repeated_folders))
    is_sweep = INVOCATION.executes and INVOCATION.takes_lock
    if is_sweep or INVOCATION.is_dry_run:  # ranks of another sweep may read the data
        JOBS.force(map(str, runs_to_do().outdated_data()))
    if is_sweep:
        runs_to_do().restore_records()


def check_start(wildcards):
    """Return no file. Check the start, once, before Snakemake decides which jobs run."""
    if INVOCATION.is_main_process:
        check_start_once()
    return []


def check_budget(wildcards):
    """Return no file. Refuse a dry-run beyond the budget, as `onstart` refuses the sweep.

    Jobs that are runs, or may lead to runs, call this: others cost no budget.
    """
    if INVOCATION.is_main_process and INVOCATION.is_dry_run:
        refuse_beyond_budget()
    return []


def request_run(wildcards):
    """Return no file. Have the request that a run's job reads written when the start is accepted.

    `onstart` accepts it. No command line has the request, and no dry-run writes it.
    """
    check_start(wildcards)
    check_budget(wildcards)
    path = planned(wildcards).path
    if INVOCATION.executes:
        if INVOCATION.is_main_process:
            refuse_read_only()
        if not INVOCATION.runs_handlers:
            accept_without_handlers()
        REQUESTS.add(runs_to_do(), path)
    elif IS_DELETING and INVOCATION.is_main_process and not INVOCATION.is_dry_run:
        if not KEPT_RECORDS:
            atexit.register(list_deleted_records)  # Snakemake runs no handler after it deletes
        KEPT_RECORDS[JOBS.record_file(path)] = runs_to_do().back_up_record(path)
    return []


@functools.cache
def refuse_beyond_budget():
    """Raise WorkflowError if the sweep exceeds its budget."""
    if refusal := START.budget_problem():
        raise WorkflowError(refusal)


@functools.cache
def accept_without_handlers():
    """Accept a start whose `onstart` Snakemake does not run, unless it exceeds its budget."""
    refuse_beyond_budget()
    REQUESTS.accept()


def list_deleted_records():
    """Print which records Snakemake has deleted, and which attempts keep them."""
    deleted = [path for path in sorted(KEPT_RECORDS) if not os.path.exists(path)]
    kept = [record for path in deleted for record in KEPT_RECORDS[path]]
    for line in text_lines.list_kept_records(kept, "deleted"):
        print(line, file=sys.stderr)


def alone(wildcards):
    """Return no file. Raise WorkflowError while another snakemake runs, unless with --nolock."""
    if INVOCATION.is_main_process:
        refuse_beside_another()
        refuse_read_only()
    return []


def plan_apart(wildcards):
    """Return no file. Write what a plan reads where no sweep reads it: also which runs are forced.

    During a sweep, Snakemake is started again without taking its lock.
    """
    if not INVOCATION.is_main_process or not INVOCATION.builds_jobs:
        return []
    refuse_options()
    if CONFIG.timings:
        raise WorkflowError(
            f"nothing is to be planned: the times of all runs are in {CONFIG.timings}"
        )
    restrict_umask()
    if INVOCATION.is_locked_by_another:
        sys.stdout.flush()
        sys.stderr.flush()
        # Snakemake has no other way to give up its lock once it has read its command line
        os.execv(sys.executable, [sys.executable, "-m", "snakemake", "--nolock", *sys.argv[1:]])
    if not INVOCATION.is_dry_run:
        refuse_read_only()
        details = Path(STUDY, PLANNED, "details")
        details.mkdir(parents=True, exist_ok=True)
        atomic.write_text(details / "config.json", CONFIG_TEXT)
        MANIFEST.write(details / "manifest.json")
        forced = msgspec.json.encode(sorted(runs_to_do().forced))
        atomic.write_text(details / "forced.json", forced.decode())
    return []


def records_of_runs(wildcards):
    """Return the records of all runs, with the conditional runs that the rounds request."""
    number = 0
    if any(run.is_conditional for run in RUNS.values()):
        number = 1
        while round_of_repeats(number)["added"]:
            number += 1
    return records_after_round(number)


def records_after_round(number):
    """Return the records of unconditional, of forced, and of conditional runs up to a round."""
    extra = round_of_repeats(number)["runs"] if number else ()
    return [
        record_of_run(path)
        for path in runs_to_do().folders_after_round(extra)
        if CONFIG.is_selected(RUNS[path].spec.point.platform) and path not in ELIMINATED
    ]


def record_of_run(path):
    """Return the record of a run; the record of a finished run causes no rerun.

    A dry-run restores no record: then it is the file of the attempt that keeps it.
    """
    record, file = f"results/runs/{path}/run.json", runs_to_do().file_of_record(path)
    if file is None:
        return record
    if Path(JOBS.record_file(path)).exists():
        return before_update(record)
    return before_update(f"results/runs/{file.relative_to(Path(ROOT, 'runs'))}")


def round_of_repeats(number):
    """Return the decisions of a round; Snakemake first runs the rounds that are missing."""
    return json.loads(Path(checkpoints.assess_repeats.get(round=number).output.runs).read_text())


def parameters_of_dataset(wildcards):
    """Return the parameters of a dataset's function as JSON."""
    spec = PREPARED.get(wildcards.dataset)
    given = variants.data_parameters(spec.dataset, spec.recipe) if spec else {}
    return msgspec.json.encode(given).decode()


def code_of_dataset(wildcards):
    """Return file → checksum of the user code that prepares a dataset; {} without user code."""
    spec = PREPARED.get(wildcards.dataset)
    return user_code.code_of_functions(spec.dataset).checksums() if spec else {}


def compared_conclusions(wildcards):
    """The conclusions, if the configuration has a reference to compare with."""
    if CONFIG.compare_with is None and not MANIFEST.revisions:
        raise WorkflowError(
            "there is nothing to compare with: name another study in compare_with, or two recipes "
            "of this one in compare_revisions"
        )
    return rules.compare.output.conclusions


def preview(jobs):
    """Return the lines of a dry-run of these jobs, as records of Snakemake's log."""
    runs_dir = Path(ROOT, "runs")
    runs = {JOBS.record_file(path): run for path, run in RUNS.items()}
    change_of = functools.partial(run_states.describe_nearest_change, runs_dir=runs_dir)
    why_repeated = runs_to_do().why_repeated
    lines = DryRun(CONFIG, MANIFEST, runs, runs_dir, why_repeated, change_of).lines(jobs)
    files = (str(file) for job in jobs for file in job["output"])
    paths = [runs[file].spec.path for file in files if file in runs]
    return [
        *lines,
        *text_lines.list_kept_records(runs_to_do().replaced_records(paths), "to be replaced"),
    ]


def say(lines):
    """Print lines by Snakemake's log; the logger plugin prints them unchanged."""
    for line in lines:
        logger.info(line, extra={"sweep": CONSOLE})


def problems_again(wildcards):
    """Return a file that is always missing if no run counts or a record is broken; else [].

    So each start has a job, and ends with status 1 again.
    """
    if OUTCOME.has_result() and not runs_to_do().unreadable:
        return []
    return rules.note_problems.output


def clean_runs_without_study(log):
    """List runs that no study of this folder requests, or remove them with `clean: remove`."""
    remove = CONFIG.clean == "remove"
    lines = unrequested_runs.report_and_remove(Path(ROOT), CONFIG.study, MANIFEST, remove=remove)
    Path(log).write_text("\n".join(lines))
    say(lines)


def begin_console():
    """Print what is to do, and which options are missing to follow it."""
    CONSOLE.is_remote = not INVOCATION.is_local
    CONSOLE.gives_up = START.has_job_callbacks
    CONSOLE.retries = INVOCATION.retries
    said = CONSOLE.begin(JOBS.specs, JOBS.records_to_do(), JOBS.decides_conditional_runs())
    if said and not INVOCATION.has_logger("sweep"):
        said += "; to follow its runs, add --logger sweep, which make setup installs"
    say([said] if said else [])
    paths = [spec.path for spec in JOBS.records_to_do().values()]
    say(text_lines.list_kept_records(runs_to_do().replaced_records(paths), "to be replaced"))
    if said and CONSOLE.is_remote:
        wait_s = INVOCATION.latency_wait_s
        needed_s = max(each.latency_wait_s for each in CONFIG.platforms.values())
        if wait_s < needed_s:
            text = (
                f"--latency-wait {wait_s:g}: a platform's latency_wait_s is {needed_s}; a finished"
            )
            say([f"{text} run whose files appear later counts as failed until the next start"])


def stamp_of(name, content):
    """Return the stamp of an output: a file whose name has the checksum of the content.

    If the content changes, its stamp is missing, and the output is written. So Snakemake notices
    the change without its memory of earlier jobs, as in copied results.
    """
    return f"{DETAILS}/{name}={hashlib.sha256(content).hexdigest()[:16]}"


def renew_stamp(stamp):
    """Create the stamp of an output, and remove the stamps of earlier contents."""
    name, _, _ = Path(stamp).name.partition("=")
    for other in Path(stamp).parent.glob(f"{name}=*"):
        other.unlink()
    Path(stamp).touch()
