"""`headgate alerts`: the project's alert rules for Prometheus."""

from __future__ import annotations

import click

from headgate.cli.options import Place, json_option, project_option, write_json


@click.command("alerts")
@json_option
@project_option
def alerts_command(place: Place, as_json: bool) -> None:
    """Write alert rules for Prometheus, made from the project.

    One rule for each table with a target_lag, each constraint and each source's retained_wal, besides those that every warehouse needs.
    Nothing is asked of a service.

    \b
    headgate alerts --project shop > alerts.yml
    """
    import yaml

    from headgate.cli.alert_rules import alert_rules
    from headgate.config.project import load_project
    from headgate.runtime.flows.definitions import read_statements

    project = load_project(place.file)
    rules = alert_rules(project, read_statements(project.flow_files))
    if as_json:
        write_json(rules)
        return
    click.echo(yaml.safe_dump(rules, sort_keys=False, allow_unicode=True, width=1_000), nl=False)
