"""A self-contained report: one HTML file that needs no kernel, no network and no library."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_nb.store.layout import make_folder, write_atomic
from msprobe_nb.views.html import comparison_head, first_calls, style, top_rows

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison

_ROWS = 500
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
{style}<style>
body{{margin:24px auto;max-width:1240px;padding:0 20px;color-scheme:light dark}}
.msnb{{max-width:none}}
@media (prefers-color-scheme:dark){{body{{background:#16181c;--jp-ui-font-color1:#e6e6e6;
--jp-ui-font-color2:#a7abb3;--jp-border-color2:#3a3d44;--jp-layout-color2:#22252b}}}}
</style></head><body><div class="msnb">
<p class="soft">Accuracy comparison by msprobe_nb</p>
{body}
<p class="soft">Target <code>{target}</code><br>Golden <code>{golden}</code></p>
</div></body></html>
"""


def write_report(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write the report; see :meth:`Comparison.to_html`."""
    target = Path(path)
    rows = top_rows(comparison, _ROWS).replace("<details>", "<details open>", 1)
    body = comparison_head(comparison) + first_calls(comparison, 50) + rows
    page = _PAGE.format(
        title=escape("Comparison"),
        style=style(),
        body=body,
        target=escape(comparison.target_url),
        golden=escape(comparison.golden_url),
    )
    make_folder(target.parent)
    write_atomic(target, page.encode("utf-8", "backslashreplace"))
    return target
