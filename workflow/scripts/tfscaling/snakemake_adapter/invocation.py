"""How Snakemake was started: its options, its configuration files, and what it is to execute."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfscaling.snakemake_adapter import resource_overrides, unsupported_options
from tfscaling.study.config_validation import RawConfig

#: Folder of Snakemake's locks, below the folder in which it was started.
LOCKS = ".snakemake/locks"


@dataclass(frozen=True)
class Invocation:
    """One start of Snakemake, as the rules see it.

    Some properties have no value before Snakemake builds its graph of jobs; their texts mention it.

    Attributes:
        workflow: Snakemake's object, which files of rules have as the global name `workflow`.
        is_module: Whether another workflow uses this one as a module. Snakemake does not run the
            handlers of a module, such as `onstart`.
        is_configured: Whether the other workflow gives the configuration; no file is then read.
        train_rule: The name of rule train, which a module may change.
    """

    workflow: Any
    is_module: bool
    is_configured: bool
    train_rule: str

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process that a user started, not one for a job."""
        return bool(self.workflow.is_main_process)

    @property
    def study_files(self) -> list[str]:
        """The files of --configfile."""
        return [os.path.relpath(path) for path in self.workflow.overwrite_configfiles]

    @property
    def has_base_files(self) -> bool:
        """Whether the Snakefile's `configfile`s are read as well, before those by --configfile."""
        return not self.workflow.config_settings.replace_workflow_config

    @property
    def configuration_files(self) -> list[str]:
        """All files of the configuration; a later one overrides an earlier one."""
        files = map(os.path.relpath, self.workflow.configfiles if self.has_base_files else ())
        return [*(name for name in files if name not in self.study_files), *self.study_files]

    @property
    def command_line(self) -> dict[str, Any]:
        """The keys and values of the configuration that --config sets."""
        return dict(self.workflow.config_settings.config)

    def apply_resource_options(
        self, config: RawConfig
    ) -> tuple[RawConfig, list[tuple[str, RawConfig]]]:
        """Apply --set-resources and --default-resources to the platforms of a configuration.

        Returns:
            The changed configuration; and (option, what it changes) for error messages.
        """
        defaults = self.workflow.resource_settings.default_resources or {}
        changes = resource_overrides.find_platform_changes(config, self._overrides, defaults)
        for change in changes:
            config = resource_overrides.merge_platforms(config, change)
        named = zip(("--set-resources", "--default-resources"), changes, strict=True)
        return config, [(option, change) for option, change in named if change]

    @property
    def _overrides(self) -> Mapping[str, Any]:
        """Resource → value that --set-resources gives to rule train."""
        return self.workflow.resource_settings.overwrite_resources.get(self.train_rule) or {}

    def refused_options(self) -> list[str]:
        """Return a line for each option that is refused, with what to do instead.

        Options about groups of jobs are only known when Snakemake builds its graph of jobs.
        """
        if not self.is_main_process:
            return []
        return [
            *unsupported_options.find_repeated_options(sys.argv[1:]),
            *unsupported_options.find_refusals(
                self.train_rule,
                self.workflow.resource_settings,
                self.workflow.storage_settings,
                self.workflow.group_settings,
                self.workflow.remote_execution_settings,
            ),
        ]

    def low_limits(self, requests: Iterable[Mapping[str, object]]) -> list[str]:
        """Return a line for each limit of --resources that is lower than a run's request.

        Args:
            requests: The requests of all runs, each as resource → value.
        """
        limits = self.workflow.resource_settings.resources
        return [*unsupported_options.find_low_limits(limits, requests)]

    def describe_replaced_resources(self, planned: Mapping[str, object]) -> str:
        """Return an error message if a module has replaced resources of rule train; else "".

        Call it when all rules are read: a module may change a rule after it was read.

        Args:
            planned: Resource → value or function, as this workflow gives it to the rule.
        """
        rule = self.workflow.get_rule(self.train_rule)
        return unsupported_options.describe_replaced_resources(rule, planned, self._overrides)

    @property
    def builds_jobs(self) -> bool:
        """Whether Snakemake executes jobs or lists them; False with options such as --summary."""
        return self.workflow.execution_settings is not None

    @property
    def is_dry_run(self) -> bool:
        """Whether --dry-run is given."""
        return bool(self.workflow.output_settings.dryrun)

    @property
    def touches(self) -> bool:
        """Whether --touch is given; known when Snakemake builds its graph of jobs."""
        plugin = self.workflow.executor_plugin
        return plugin is not None and plugin.common_settings.touch_exec

    @property
    def executes(self) -> bool:
        """Whether this is the main process and runs jobs; known when Snakemake builds its graph."""
        is_start = self.is_main_process and self.builds_jobs
        return is_start and not self.is_dry_run and not self.touches

    @property
    def is_local(self) -> bool:
        """Whether jobs run on this machine; known when Snakemake builds its graph of jobs."""
        plugin = self.workflow.executor_plugin
        return plugin is None or plugin.common_settings.local_exec

    @property
    def takes_lock(self) -> bool:
        """Whether Snakemake locks the folder; known when it builds its graph of jobs."""
        return self.builds_jobs and self.workflow.execution_settings.lock

    @property
    def is_locked_by_another(self) -> bool:
        """Whether another snakemake has the lock; only valid before this one takes it."""
        return self.takes_lock and any(Path(LOCKS).glob("*.lock"))

    @property
    def runs_handlers(self) -> bool:
        """Whether Snakemake runs handlers such as `onstart`.

        The value is only right from the building of the graph of jobs on.
        """
        return not self.is_module and not self.workflow.execution_settings.no_hooks

    @property
    def retries(self) -> int:
        """How often a failed job is retried; known when Snakemake builds its graph of jobs."""
        return int(self.workflow.execution_settings.retries)

    @property
    def latency_wait_s(self) -> float:
        """Seconds to wait for a job's outputs; known when Snakemake builds its graph of jobs."""
        return float(self.workflow.execution_settings.latency_wait)

    def has_logger(self, name: str) -> bool:
        """Return whether the logger plugin of this name is used."""
        return name in self.workflow.output_settings.log_handler_settings

    def limit_resource(self, name: str, value: int) -> None:
        """Limit the sum of a resource over all running jobs, unless --resources limits it.

        Args:
            name: Name of the resource.
            value: The highest sum.
        """
        if name not in self.workflow.global_resources:
            self.workflow.global_resources[name] = value


def current_invocation(workflow: Any) -> Invocation:
    """Return the present start of Snakemake; call it while Snakemake reads the rules.

    Args:
        workflow: The global name `workflow` of the file of rules; a module has its own.
    """
    return Invocation(
        workflow=workflow,
        is_module=bool(workflow.modifier.namespace),
        is_configured=workflow.modifier.skip_configfile,
        train_rule=workflow.modifier.modify_rulename("train"),
    )
