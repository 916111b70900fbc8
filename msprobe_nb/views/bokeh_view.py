"""A live Bokeh figure in any Jupyter front end.

BokehJS is read from the installed bokeh package and sent once a page as a message, so it comes
from no network and is never written into a notebook. Changes travel both ways as Bokeh's own
document patches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anywidget
import bokeh
import traitlets as T
from bokeh.core.json_encoder import serialize_json
from bokeh.core.serialization import Buffer, Serialized
from bokeh.document import Document
from bokeh.document.events import DocumentPatchedEvent
from bokeh.embed.util import standalone_docs_json_and_render_items
from bokeh.model import Model
from bokeh.protocol import Protocol

_SCRIPTS = Path(bokeh.__file__).parent / "server" / "static" / "js"


class BokehView(anywidget.AnyWidget):
    """Shows a Bokeh model and keeps both sides equal.

    Parameters
    ----------
    model : bokeh.model.Model
        A figure or layout.
    """

    _esm = Path(__file__).parent / "bokeh_view.js"
    bokeh_version = T.Unicode(bokeh.__version__).tag(sync=True)

    def __init__(self, model: Model, **options: Any) -> None:
        self.root = model
        self._held: list[DocumentPatchedEvent] | None = None
        self.document = model.document or Document()
        if model.document is None:
            self.document.add_root(model)
        super().__init__(**options)
        self.document.on_change_dispatch_to(self)
        self.on_msg(self._receive)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send the changes that are made inside as one, so that the browser draws once."""
        self._held = []
        try:
            yield
        finally:
            events, self._held = self._held, None
            if events:
                self._send_patch(events)

    def _document_patched(self, event: DocumentPatchedEvent) -> None:
        """A change made in Python: send it to the browser."""
        if event.setter is self:
            return
        if self._held is not None:
            self._held.append(event)
        else:
            self._send_patch([event])

    def _send_patch(self, events: list[DocumentPatchedEvent]) -> None:
        message = Protocol().create("PATCH-DOC", events)
        buffers = list(message.buffers)
        self.send(
            {
                "kind": "patch",
                "content": message.content_json,
                "ids": [buffer.id for buffer in buffers],
            },
            buffers=[buffer.to_bytes() for buffer in buffers],
        )

    def _receive(self, _: object, content: dict[str, Any], buffers: list[Any]) -> None:
        kind = content.get("kind")
        if kind == "scripts":
            names = ("bokeh.min.js", "bokeh-widgets.min.js")
            self.send({"kind": "scripts"}, [(_SCRIPTS / name).read_bytes() for name in names])
        elif kind == "document":
            documents, [item] = standalone_docs_json_and_render_items(
                [self.root], suppress_callback_warning=True
            )
            self.send(
                {
                    "kind": "document",
                    "view": content["view"],
                    "documents": serialize_json(documents),
                    "item": serialize_json(item.to_json()),
                }
            )
        elif kind == "patch":
            parts = [
                Buffer(id=name, data=bytes(data))
                for name, data in zip(content["ids"], buffers, strict=True)
            ]
            patch = Serialized(content=content["content"], buffers=parts)
            self.document.apply_json_patch(patch, setter=self)

    def __repr__(self) -> str:
        return f"<BokehView of {type(self.root).__name__}>"
