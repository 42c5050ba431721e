"""The library beside the scripts: from a configuration to runs, records and tables.

Modules are layered and import only from layers below: ground (`cluster`, `nodelist`), plan
(`configuration`, `grid`, `platforms`, `parameters`, `costs`), job (`launchers`, `records`, `truth`,
`metrics`, ...), training (`trainer`, `strategies`, `models`, ...), view (`tables`, `plots`).
"""

#: Raised when a change of the trainer makes earlier measurements incomparable: every run reruns.
TRAINER_VERSION = 3
