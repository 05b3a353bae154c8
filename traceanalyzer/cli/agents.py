"""`traceanalyzer mcp` and `traceanalyzer skill`."""

from pathlib import Path

import click

from traceanalyzer.cli.options import force_option
from traceanalyzer.cli.output import check_outputs, made, put, put_text

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(short_help="Answer an agent over the Model Context Protocol.")
@click.argument("roots", metavar="[FOLDER]...", nargs=-1, type=_FOLDER)
def mcp(roots: tuple[Path, ...]) -> None:
    """Serve five tools that only read, diagnose, brief, explain, events and compare, on standard input and output.

    Files under FOLDER are read, and no others; without it, those under the current folder. Needs the mcp package:
    pip install 'torch-traceanalyzer[mcp]'.

    \b
    Examples:
      traceanalyzer mcp traces/
    """
    from traceanalyzer.integrations.answers import roots_of
    from traceanalyzer.integrations.server import serve

    serve(roots_of(roots))


@click.command(short_help="A skill: how an agent uses this program.")
@click.option("--install", "folder", type=_FOLDER, metavar="DIR", help="Copy it to DIR/traceanalyzer.")
@force_option
def skill(folder: Path | None, force: bool) -> None:
    """Print SKILL.md, or copy the skill with its references into a folder of skills.

    \b
    Examples:
      traceanalyzer skill
      traceanalyzer skill --install ~/.claude/skills
    """
    source = Path(__file__).parents[1] / "integrations" / "skill"
    if folder is None:
        put_text((source / "SKILL.md").read_text("utf-8"))
        return
    target = folder / "traceanalyzer"
    files = {target / path.relative_to(source): path for path in sorted(source.rglob("*.md"))}
    for path in files:
        made(path.parent)
    check_outputs(list(files), force=force)
    for path, original in files.items():
        put(original.read_bytes(), path)
    click.echo(f"{target}: {len(files)} files", err=True)
