"""Vega and Vega-Lite as one script, from the package that also renders files; made once and kept in the cache."""

from __future__ import annotations

from importlib.metadata import version

from acclimate.data.folders import cache_folder, write_whole
from acclimate.report.pictures.render import VERSION


def vega() -> str:
    """The script: `window.vegaEmbed`. Bundling it takes seconds, so it is kept."""
    import vl_convert

    path = cache_folder() / "report" / f"vega-{version('vl-convert-python')}-{VERSION}.js"
    if not path.exists():
        bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VERSION)
        write_whole(path, lambda file: file.write(bundle.encode()))
    return path.read_text(encoding="utf-8")
