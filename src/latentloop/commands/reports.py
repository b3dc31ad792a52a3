"""Results to look at, and models for other runtimes: report, export-onnx."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from latentloop.commands.models import DEFAULT, Asked
from latentloop.commands.terminal import is_file, progress, refuse_overwriting, stderr
from latentloop.errors import UserError
from latentloop.files import check_writable, writing

STUDY = "verdicts.json"
"""What every folder holds that interpret has written."""
Sources = Positional[Annotated[tuple[str, ...], arg(metavar="RUN|RESULT ...")]]


def report(sources: Sources, *, output: Path | None = None) -> None:
    """Write one offline HTML file about runs and results: curves, tables by size, figures, settings and provenance.

    Args:
        sources: Run folders, checkpoint folders or shipped names, and files that evaluate, certify or stress have written;
            several are shown together, evaluations in one figure. Or one folder that interpret has written.
        output: File for the page, .html. Default: in results/, named after the first source.
    """
    from latentloop.report.page import write_page
    from latentloop.report.run_page import report_page
    from latentloop.report.stored import read_folder, read_result

    if not sources:
        raise UserError("a report needs a run folder, or a file that `latentloop evaluate` has written; got none")
    paths = [_path(source) for source in sources]
    read = [file for path in paths for file in (path.glob("*.json*") if path.is_dir() else [path])]
    if output is None:
        output = Path("results") / f"{Path(sources[0]).resolve().name.removesuffix('.json')}-report.html"
    if output.suffix not in (".html", ".htm"):
        raise UserError(f"cannot write {output}: the name of a page must end in .html")
    refuse_overwriting([output], read)
    check_writable(output)
    studies = [path for path in paths if path.is_dir() and (path / STUDY).is_file()]
    if studies:
        if len(paths) > 1:
            raise UserError(f"a report of an interpretation is of one folder, {studies[0]}: leave out the others")
        from latentloop.report.study import stored_page

        write_page(stored_page(studies[0]), output)
        stderr.print(f"wrote {output}")
        return
    try:
        stored = [part for path in paths for part in (read_folder(path) if path.is_dir() else [read_result(path)])]
        write_page(report_page(stored), output)
    except RecursionError as error:  # a result may come from a stranger
        raise UserError(f"cannot show {' '.join(sources)}: a result is nested too deeply") from error
    stderr.print(f"wrote {output}")


def _path(source: str) -> Path:
    """Return the folder or the file that a source names."""
    if is_file(source):
        return Path(source)
    from latentloop.evaluate.hub import resolve

    found = resolve(source)
    if not found.exists():
        raise UserError(f"no run and no result at {source!r}: expected a folder, a .json file or a shipped name")
    return found


def export_onnx(model: Asked = DEFAULT, *, output: Path) -> None:
    """Export one update of a model to ONNX: state in, next state out, for any batch and any length.

    The file is written only if it gives the same state as the model after every iteration of 100 problems; else the command
    exits with 1. Needs the packages of `pip install 'latentloop[onnx]'`, and a model that carries a discrete state.

    Args:
        model: Which model to export.
        output: File for the graph, .onnx.
    """
    if output.suffix != ".onnx":
        raise UserError(f"cannot write {output}: the name of an ONNX file must end in .onnx")
    check_writable(output)
    import onnx  # noqa: F401  before torch: the extra that is then named brings both

    from latentloop.evaluate import export

    trained = model.load()
    export.check_exportable(trained.run)
    model.refuse_overwriting([output])
    content = export.export_onnx(trained)
    with progress("comparing on problems", export.CHECKED) as advance:
        found = export.differences(content, trained, advance=advance)
    if found["different"]:
        stderr.print(
            f"the exported graph differs from the model on {found['different']} of {found['problems']} problems"
        )
        sys.exit(1)
    with writing(output, "wb") as file:
        file.write(content)
    stderr.print(
        f"wrote {output}: the same states as the model's after each of {found['iterations']} iterations, "
        f"on {found['problems']} problems"
    )
