"""What a model has learned: interpret."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from latentloop.commands.models import DEFAULT, Asked, result_path
from latentloop.commands.terminal import Json, print_json, progress, stderr
from latentloop.commands.terminal import output as standard_output
from latentloop.errors import UserError
from latentloop.files import check_writable, read_json

MAX_INSTANCES = 1_000_000


def interpret(
    model: Asked = DEFAULT,
    *,
    output: Path | None = None,
    full: bool = False,
    only: Annotated[tuple[str, ...] | None, arg(metavar="NAME [NAME ...]")] = None,
    instances: int | None = None,
    json: Json = False,
) -> None:
    """Open a model: which heads do what, in which frequencies it computes, where its errors come from, with causal checks.

    Every analysis that applies to the model is run, and says why where it does not. Results, figures and one offline HTML page
    go to a folder. An analysis whose result is there already, for the same weights and settings, is not run again: after
    Ctrl-C the same command goes on. Verdicts are given on all that the folder holds of these weights.

    Args:
        model: Which model to open, and where it runs.
        output: Folder for results, figures and the page. Default: in results/, named after the model.
        full: Attribute errors on 23,000 problems, as the paper does, and not on 256. This takes one to three hours; every 1,000
            problems are kept, so that it can be interrupted.
        only: Names of analyses to run, with those they need: heads, flow, circuits, ablation, sinks, residual, embeddings,
            fourier, errors, sharpness, recompute, keeping, iterations, drift. Default: all of them.
        instances: Problems to attribute errors on, where neither 256 nor 23,000 will do.
        json: Print one JSON document on standard output, and nothing else there.
    """
    if instances is not None and (full or not 1 <= instances <= MAX_INSTANCES):
        raise UserError(f"--instances must be 1 to {MAX_INSTANCES:,}, and not with --full, got {instances}")
    if only == ():
        raise UserError("--only needs the name of an analysis: leave it out to run all of them")
    only = only or ()
    from latentloop.interpret.study import FULL, VERDICTS, chosen, interpret, model_file
    from latentloop.interpret.subject import Settings
    from latentloop.report.console import claims_table
    from latentloop.report.study import write_report

    settings = FULL if full else Settings()
    settings = settings if instances is None else replace(settings, instances=instances)
    chosen(only)  # what is asked wrongly is refused before weights are read
    if output is not None:
        _check_folder(output)
    trained = model.load()
    folder = output or result_path(None, model, trained, "interpret", {}).with_suffix("")
    _check_folder(folder)

    model_file(folder, model.describe(trained))
    with progress("analyses", len(chosen(only)) + trained.method.latent) as advance:

        def told(name: str, how: str) -> None:
            if how != "done":
                stderr.print(f"{name}: {how}")
            if not how.startswith("running"):
                advance(1)

        study = interpret(trained, folder, settings, only=only, told=told)
    written = write_report(folder)
    document: dict[str, Any] = read_json(folder / f"{VERDICTS}.json")
    if json:
        print_json(document | {"model": model.describe(trained)})
    else:
        standard_output().print(claims_table(document, model.title))
        standard_output().print(f"circuit: {study.circuit}")
    if study.left_out:
        stderr.print(f"not used, of what was there: {', '.join(study.left_out)}")
    stderr.print(f"wrote {folder} and {written}")


def _check_folder(folder: Path) -> None:
    """Refuse a folder that results cannot be written to."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output must be a folder, and {folder} is a file")
    from latentloop.interpret.study import VERDICTS

    check_writable(folder / f"{VERDICTS}.json")
